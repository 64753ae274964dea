--@include events numbers
-- Alerts before the credits of an account end (`credits.low`). `alerts` of the account are its thresholds, the highest first, with
-- spaces; `alerted` is that list, `/`, and the lowest threshold that was told. A grant or an adjustment upwards arms what the balance
-- is above again; a refund does not, or a balance at the line would be told of with each failed task. Decision 0076.

-- Tells of the lowest threshold that the credits are below and that was not told since it was armed. `available` is what can be spent
-- from now on, `subject` tells this time apart. Returns the new `alerted` (empty: nothing was told), nil if it stays.
local function alert_credits(account, now, account_id, alerts, available, is_recharge, subject)
  local of_account = call("HMGET", account, "alerted", "webhooks")
  local told = tonumber(string.match(of_account[1] or "", "^" .. alerts .. "/(%d+)$"))
  local lowest
  for threshold in string.gmatch(alerts, "%d+") do
    if available < tonumber(threshold) then lowest = threshold end
  end
  if is_recharge then return told and (lowest and alerts .. "/" .. lowest or "") or nil end
  if not of_account[2] or not lowest or (told and tonumber(lowest) >= told) then return nil end
  local data = '{"balance":' .. int(available) .. ',"threshold":' .. lowest .. "}"
  add_event(account, now, account_id, of_account[2], "credits.low", subject, data, data)
  return alerts .. "/" .. lowest
end
