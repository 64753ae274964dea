#!lua flags=no-writes
-- HOLDING: what an account holds, and what its holds add up to that are among `holds` and have a slot, at one instant. For accounts
-- that SNAPSHOT reads in slices. The names of requests and slots are built here, so they are not among KEYS; they are in the same
-- partition.
-- The fields of its records stand in src/records/records.ts. Decision 0064.
--
-- BOUND  1250  the holds of the partition that are asked for
-- KEYS  1 account (hash)  2 holds (zset: request id by due ms)
-- ARGV  1 now (ms or empty)  2 account id  3 maximum number of holds in the partition
--       and the prefixes of the names of:  4 slots  5 requests
-- RETURNS outcome, now
--   read      credits that the account holds, credits of its holds
--   too_many  there are more holds than that; nothing was read
--@include clock
--@include numbers
local now = store_now(ARGV[1])
if redis.call("ZCARD", KEYS[2]) > tonumber(ARGV[3]) then return { "too_many", now } end
local credits = 0
for _, id in ipairs(redis.call("ZRANGE", KEYS[2], 0, -1)) do
  local record = redis.call("HMGET", ARGV[5] .. id, "account_id", "state", "price", "key_id")
  if record[1] == ARGV[2] and record[2] == "held"
    and redis.call("SISMEMBER", ARGV[4] .. (record[4] or ""), id) == 1 then
    credits = credits + tonumber(record[3] or 0)
  end
end
return { "read", now, redis.call("HGET", KEYS[1], "held") or "0", int(credits) }
