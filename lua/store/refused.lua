#!lua
-- REFUSED: adds refusals of keys to the counts of their partition and UTC day. Statistics, not money: a call that is repeated
-- counts twice.
--
-- BOUND  4000  the refusals that are sent
-- `counts` is a hash: "account id, hour, key id, outcome" to how many; account id to how many fields it has; * to how many
-- had no room. `items`: account id, hour (00 to 23), key id, outcome, count.
-- RETURNS outcome, now
--   counted   an account that has its fields counts under the key id *
--@keys counts
--@args now account_fields_max fields_max lifetime_ms items...
--@unless_frozen counts
for at = 1, #items, 5 do
  local account_id, hour, key_id, outcome = items[at], items[at + 1], items[at + 2], items[at + 3]
  local field = account_id .. " " .. hour .. " " .. key_id .. " " .. outcome
  if call("HEXISTS", counts, field) == 0 then
    if tonumber(call("HGET", counts, account_id) or 0) >= tonumber(account_fields_max) then
      field = account_id .. " " .. hour .. " * " .. outcome
    end
    if call("HEXISTS", counts, field) == 0 then
      if call("HLEN", counts) >= tonumber(fields_max) then
        field = "*"
      else
        call("HINCRBY", counts, account_id, 1)
      end
    end
  end
  call("HINCRBY", counts, field, items[at + 4])
end
call("PEXPIRE", counts, lifetime_ms)
return { "counted", now }
