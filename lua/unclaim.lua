#!lua flags=allow-oom
-- UNCLAIM: on a Redis Cluster, releases a task id when its request is collected. COLLECT cannot reach the claim, and a new
-- request may have claimed the id since: only its owner releases it.
--
-- KEYS  1 claim (string: request id)
-- ARGV  1 now (ms or empty)  2 request id
-- RETURNS outcome, now
--   unclaimed
--   kept    released before, or claimed by another request since; nothing happens
--@include clock
local now = store_now(ARGV[1])
if redis.call("GET", KEYS[1]) ~= ARGV[2] then return { "kept", now } end
redis.call("DEL", KEYS[1])
return { "unclaimed", now }
