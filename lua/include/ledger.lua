--@include events money numbers
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
  -- Holds may have brought the credits below a threshold that no charge has told of yet: a grant does not take it for told.
  if is_recharge then return told and (lowest and alerts .. "/" .. int(math.max(told, tonumber(lowest))) or "") or nil end
  if not lowest or (told and tonumber(lowest) >= told) then return nil end
  local data = '{"balance":' .. int(available) .. ',"threshold":' .. lowest .. "}"
  -- A message that nobody wants, or that has no room, comes with a later charge.
  local event_id = add_event(account, now, account_id, of_account[2], "credits.low", subject, data, data)
  return event_id and alerts .. "/" .. lowest or nil
end

-- Moves money and writes the ledger in the same step: account and stream never disagree. Each entry names the one
-- before it of its account, and the account the last one, so that the latest are found without a list of their own.
-- `at` is when (ms, as a text); `held` and `used` are added to what is held and to the total used; `more` is a flat list
-- of further field, value pairs of the stream entry, or nil. include/entry.lua reads the entry. Returns its id.
local function post(account, ledger, at, account_id, kind, amount, held, used, endpoint, task_id, request_id, key_id, more)
  local balance_before, held_before, used_before, requests, last, extras = money_words(call("HGET", account, "money"))
  local balance, previous = int(balance_before + amount), last ~= "-" and last or ""
  local entry = kind .. " " .. account_id .. " " .. key_id .. " " .. endpoint .. " " .. int(amount) .. " " .. at .. " "
    .. balance .. " " .. previous .. " " .. request_id .. " " .. task_id
  local is_refund = amount > 0 and request_id ~= ""
  local alerts, alerted = extras ~= "" and not is_refund and call("HGET", account, "alerts"), nil
  if alerts then
    -- Before the first write: what it writes can run twice.
    local available = balance - held_before - held
    -- The id of an entry is that of its partition alone, and a receiver of many accounts ignores an id that it has seen.
    alerted = alert_credits(account, tonumber(at), account_id, alerts, available, amount > 0, account_id .. "-" .. previous)
  end
  local id = more and call("XADD", ledger, "*", "entry", entry, unpack(more)) or call("XADD", ledger, "*", "entry", entry)
  write_money(account, balance, int(held_before + held), int(used_before + used), requests, id, extras)
  if alerted then call("HSET", account, "alerted", alerted) end
  return id
end
