--@include alerts
--@include numbers
-- Moves money and writes the ledger in the same step: account and stream never disagree. Each entry names the one
-- before it of its account, and the account the last one, so that the latest are found without a list of their own.
-- `at` is when (ms, as a text); `held` and `used` are added to what is held and to the total used; `more` is a flat list
-- of further field, value pairs of the stream entry, or nil. include/entry.lua reads the entry. Returns its id.
local function post(account, ledger, at, account_id, kind, amount, held, used, endpoint, task_id, request_id, key_id, more)
  local money = call("HMGET", account, "balance", "held", "total_used", "last_entry", "alerts")
  local balance = int((money[1] or 0) + amount)
  local entry = kind .. " " .. account_id .. " " .. key_id .. " " .. endpoint .. " " .. int(amount) .. " " .. at .. " "
    .. balance .. " " .. (money[4] or "") .. " " .. request_id .. " " .. task_id
  local alerted
  if money[5] then
    -- Before the first write: what it writes can run twice.
    local available = balance - (money[2] or 0) - held
    local is_recharge = kind == "recharge" and request_id == ""
    alerted = alert_credits(account, tonumber(at), account_id, money[5], available, is_recharge, money[4] or account_id)
  end
  local id = more and call("XADD", ledger, "*", "entry", entry, unpack(more)) or call("XADD", ledger, "*", "entry", entry)
  call("HSET", account, "balance", balance, "held", int((money[2] or 0) + held),
    "total_used", int((money[3] or 0) + used), "last_entry", id)
  if alerted then call("HSET", account, "alerted", alerted) end
  return id
end
