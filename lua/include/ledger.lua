--@include numbers
-- Moves money and writes the ledger in the same step: account and stream never disagree. Each entry names the one
-- before it of its account, and the account the last one, so that the latest are found without a list of their own.
-- `at` is when (ms, as a text); `held` and `used` are added to what is held and to the total used; `entry` is a flat list
-- of further field, value pairs of the stream entry. Returns the id of the entry.
local function post(account, ledger, at, account_id, kind, amount, held, used, endpoint, reason, task_id, entry)
  local money = call("HMGET", account, "balance", "held", "total_used", "last_entry")
  local balance = int(tonumber(money[1] or 0) + amount)
  local id = call("XADD", ledger, "*", "account_id", account_id, "type", kind, "amount", int(amount),
    "balance_after", balance, "endpoint", endpoint, "reason", reason, "task_id", task_id, "at", at,
    "previous", money[4] or "", unpack(entry))
  call("HSET", account, "balance", balance, "held", int(tonumber(money[2] or 0) + held),
    "total_used", int(tonumber(money[3] or 0) + used), "last_entry", id)
  return id
end
