#!lua flags=allow-oom
-- PROBE: writes, so that a read-only replica counts as away. It may write while Redis is out of memory, so that requests
-- under way are settled while new ones are refused.
--
-- BOUND  5  one string
-- RETURNS outcome, now
--   written
--@keys probe
--@args now lifetime_ms
--@include clock
call("SET", probe, "1", "PX", lifetime_ms)
return { "written", store_now(now) }
