#!lua flags=allow-oom
-- UNCLAIM: on a Redis Cluster, gives a task id back once its request is forgotten. COLLECT cannot reach the claim, and a new
-- request may have taken it since: only the one that owns it gives it back.
--
-- KEYS  1 claim (string: request id)
-- ARGV  1 now (ms or empty)  2 request id
-- RETURNS outcome, now
--   unclaimed
--   kept    free already, or another request's by now; nothing happens
--@include clock
local now = store_now(ARGV[1])
if redis.call("GET", KEYS[1]) ~= ARGV[2] then return { "kept", now } end
redis.call("DEL", KEYS[1])
return { "unclaimed", now }
