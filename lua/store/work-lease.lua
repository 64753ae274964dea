#!lua flags=allow-oom
-- WORK-LEASE: takes or renews the lease of work that one process at a time does. A lease ends by itself, so another process takes
-- over from one that hangs. Redis may be out of memory: work that frees memory (copying, trimming, rolling up) waits for a lease.
--
-- BOUND  10  one name
-- RETURNS outcome, now
--   taken
--   others  another process has it; nothing happens
--@keys lease
--@args now who lifetime_ms
local holder = call("GET", lease)
if holder and holder ~= who then return { "others", now } end
call("SET", lease, who, "PX", lifetime_ms)
return { "taken", now }
