#!lua flags=allow-oom
-- UNCLEAR: notes that the upstream gave no clear answer to a held request, for repeats with its Idempotency-Key at any
-- gateway until the hold ends.
-- The fields of its records stand in src/store/records.ts.
--
-- BOUND  20  one request
-- KEYS  1 idempotency (hash)
-- ARGV  1 now (ms or empty)  2 request id  3 what it was answered: unclear or timed_out
-- RETURNS outcome, now
--   noted
--   missing  the Idempotency-Key is free, another request's, or has a task; nothing happens
--@include clock
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local first = redis.call("HMGET", KEYS[1], "request_id", "task_id")
if first[1] ~= ARGV[2] or first[2] then return { "missing", now } end
redis.call("HSET", KEYS[1], "unknown", ARGV[3])
return { "noted", now }
