#!lua flags=allow-oom
-- CLAIM: on a Redis Cluster, claims an upstream task id over all partitions, before BIND, which reaches only its own.
--
-- KEYS  1 claim (string: request id)
-- ARGV  1 now (ms or empty)  2 request id
-- RETURNS outcome, now
--   taken     claimed for this request now
--   owned     claimed for this request before
--   conflict  owned by another request; nothing happens; also its id
--@include clock
local now = store_now(ARGV[1])
local owner = redis.call("GET", KEYS[1])
if owner == ARGV[2] then return { "owned", now } end
if owner then return { "conflict", now, owner } end
redis.call("SET", KEYS[1], ARGV[2])
return { "taken", now }
