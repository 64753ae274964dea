#!lua flags=allow-oom
-- TURN: takes the turn to do what one process at a time does, or goes on with it. A turn ends by itself, so another process takes
-- over from one that hangs. Redis may be out of memory: what frees memory (copying, trimming, rolling up) waits for a turn.
--
-- BOUND  10  one name
-- RETURNS outcome, now
--   taken
--   others  somebody else has it; nothing happens
--@keys turn
--@args now who lifetime_ms
local holder = call("GET", turn)
if holder and holder ~= who then return { "others", now } end
call("SET", turn, who, "PX", lifetime_ms)
return { "taken", now }
