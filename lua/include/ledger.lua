--@include alerts money numbers
-- Moves money and writes the ledger in the same step: account and stream never disagree. Each entry names the one
-- before it of its account, and the account the last one, so that the latest are found without a list of their own.
-- `at` is when (ms, as a text); `held` and `used` are added to what is held and to the total used; `more` is a flat list
-- of further field, value pairs of the stream entry, or nil. include/entry.lua reads the entry. Returns its id.
local function post(account, ledger, at, account_id, kind, amount, held, used, endpoint, task_id, request_id, key_id, more)
  local balance_before, held_before, used_before, requests, last, extras = money_words(call("HGET", account, "money"))
  local balance, previous = int(balance_before + amount), last ~= "-" and last or ""
  local entry = kind .. " " .. account_id .. " " .. key_id .. " " .. endpoint .. " " .. int(amount) .. " " .. at .. " "
    .. balance .. " " .. previous .. " " .. request_id .. " " .. task_id
  local alerts, alerted = extras ~= "" and call("HGET", account, "alerts"), nil
  if alerts then
    -- Before the first write: what it writes can run twice.
    local available = balance - held_before - held
    local is_recharge = kind == "recharge" and request_id == ""
    alerted = alert_credits(account, tonumber(at), account_id, alerts, available, is_recharge, previous ~= "" and previous or account_id)
  end
  local id = more and call("XADD", ledger, "*", "entry", entry, unpack(more)) or call("XADD", ledger, "*", "entry", entry)
  write_money(account, balance, int(held_before + held), int(used_before + used), requests, id, extras)
  if alerted then call("HSET", account, "alerted", alerted) end
  return id
end
