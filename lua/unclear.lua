#!lua flags=allow-oom
-- UNCLEAR: the upstream gave no clear answer to a held request. A repeat with its Idempotency-Key is told so until the hold
-- ends, by whichever gateway it asks.
-- The fields of its records stand in src/store/records.ts.
--
-- KEYS  1 idempotency (hash)
-- ARGV  1 now (ms or empty)  2 request id  3 what it was answered: unclear or timed_out
-- RETURNS outcome, now
--   noted
--   missing  the key is free, another request's or has a task by now; nothing happens
--@include clock
local now = store_now(ARGV[1])
local first = redis.call("HMGET", KEYS[1], "request_id", "task_id")
if first[1] ~= ARGV[2] or first[2] then return { "missing", now } end
redis.call("HSET", KEYS[1], "unknown", ARGV[3])
return { "noted", now }
