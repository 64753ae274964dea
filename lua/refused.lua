#!lua
-- REFUSED: adds refusals of keys to the counts of their partition and UTC day. Statistics, not money: a call that is repeated
-- counts twice.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  4000  the refusals that are sent
-- KEYS  1 refusals (hash: "account id, hour, key id, outcome" to how many; account id to how many fields it has; * to how
--         many had no room)
-- ARGV  1 now (ms or empty)  2 fields that one account may have  3 fields that there may be  4 lifetime (ms)
--       5.. account id, hour (00 to 23), key id, outcome, count
-- RETURNS outcome, now
--   counted   an account that has its fields counts under the key id *
--@include clock
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local counts, items = KEYS[1], { unpack(ARGV, 5) }
for at = 1, #items, 5 do
  local account_id, hour, key_id, outcome = items[at], items[at + 1], items[at + 2], items[at + 3]
  local field = account_id .. " " .. hour .. " " .. key_id .. " " .. outcome
  if redis.call("HEXISTS", counts, field) == 0 then
    if tonumber(redis.call("HGET", counts, account_id) or 0) >= tonumber(ARGV[2]) then
      field = account_id .. " " .. hour .. " * " .. outcome
    end
    if redis.call("HEXISTS", counts, field) == 0 then
      if redis.call("HLEN", counts) >= tonumber(ARGV[3]) then
        field = "*"
      else
        redis.call("HINCRBY", counts, account_id, 1)
      end
    end
  end
  redis.call("HINCRBY", counts, field, items[at + 4])
end
redis.call("PEXPIRE", counts, ARGV[4])
return { "counted", now }
