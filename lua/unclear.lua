#!lua flags=allow-oom
-- UNCLEAR: the upstream gave no clear answer to a held request. The request counts among the unknown outcomes of its account until its
-- hold ends, and repeats with its Idempotency-Key are told so at any gateway.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  20  one request
-- KEYS  1 request (hash)  2 account (hash)  3 unknown (zset: request id by due ms)
--       4 idempotency (hash; only with an Idempotency-Key)
-- ARGV  1 now (ms or empty)  2 request id  3 what it was answered: unclear or timed_out
--       4 how many unknown outcomes an account may have
-- RETURNS outcome, now
--   noted    then how many unknown outcomes the account has, and until when it makes no further request (ms; 0: it may)
--   missing  the request has no hold any more; nothing happens
--@include clock
--@include unknown
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local record = redis.call("HMGET", KEYS[1], "state", "due_at")
if record[1] ~= "held" then return { "missing", now } end
if KEYS[4] and redis.call("HGET", KEYS[4], "request_id") == ARGV[2] then
  redis.call("HSET", KEYS[4], "unknown", ARGV[3])
end
redis.call("HSET", KEYS[1], "unknown", ARGV[3])
redis.call("ZADD", KEYS[3], record[2], ARGV[2])
local count, blocked_until = block_account(KEYS[2], KEYS[3], tonumber(ARGV[4]))
return { "noted", now, count, blocked_until }
