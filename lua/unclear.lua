#!lua flags=allow-oom
-- UNCLEAR: the upstream gave no clear answer to a held request. A repeat with its Idempotency-Key is told so until the hold
-- ends, by whichever gateway it asks.
--
-- KEYS  1 idempotency (hash)
-- ARGV  1 now (ms or empty)  2 tiers (unused)  3 request id  4 what it was answered: unclear or timed_out
-- RETURNS outcome, now
--   noted
--   missing  the key is free, another request's or has a task by now; nothing happens
local now = store_now()
local first = redis.call("HMGET", KEYS[1], "request_id", "task_id")
if first[1] ~= ARGV[3] or first[2] then return { "missing", now } end
redis.call("HSET", KEYS[1], "unknown", ARGV[4])
return { "noted", now }
