#!lua flags=allow-oom
-- NOTE: notes in the archive's record what a copier is about to do, and accounts and keys as changed. Redis may be out of memory:
-- nothing leaves it that is not copied.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  1100  up to 500 accounts and keys of a page
-- KEYS  1 archive (hash)  2 changed (hash: account or key to the number of its changes)
-- ARGV  1 now (ms or empty)  2 the generation that the record must have (empty: any)  3 how many values of the record follow
--       4.. field, value; behind them accounts and keys that have changed
-- RETURNS outcome, now
--   noted
--   other  the record has another generation; nothing happens
--@include clock
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local archive, changed = KEYS[1], KEYS[2]
if ARGV[2] ~= "" and redis.call("HGET", archive, "generation") ~= ARGV[2] then return { "other", now } end
local items = { unpack(ARGV, 4) }
local values = tonumber(ARGV[3])
if values > 0 then redis.call("HSET", archive, unpack(items, 1, values)) end
for at = values + 1, #items do redis.call("HINCRBY", changed, items[at], 1) end
return { "noted", now }
