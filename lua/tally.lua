#!lua
-- TALLY: counts some keys of a partition under their tiers, if they are not counted yet. The names of the keys are built
-- here, so they are not among KEYS; they are in the same partition.
-- The fields of its records stand in src/store/records.ts.
--
-- BOUND  2500  the keys that are named
-- KEYS  1 tiers (hash: tier to how many keys use it)
-- ARGV  1 now (ms or empty)  2 prefix of the names of keys  3 whether all other keys of the partition are counted (1 or 0)
--       4.. key ids
-- RETURNS outcome, now
--   tallied
--@include clock
--@include numbers
--@include tiers
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
for _, key_id in ipairs({ unpack(ARGV, 4) }) do
  count_tier(ARGV[2] .. key_id, KEYS[1])
end
if ARGV[3] == "1" then redis.call("HSET", KEYS[1], "#counted_at", int(now)) end
return { "tallied", now }
