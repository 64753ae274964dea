#!lua flags=allow-oom
-- PROBE: writes, so that a read-only replica counts as away. It may write while Redis is out of memory, so that requests
-- under way are settled while new ones are refused.
--
-- BOUND  5  one string
-- KEYS  1 probe (string)
-- ARGV  1 now (ms or empty)  2 lifetime (ms)
-- RETURNS outcome, now
--   written
--@include clock
redis.call("SET", KEYS[1], "1", "PX", ARGV[2])
return { "written", store_now(ARGV[1]) }
