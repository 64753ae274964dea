#!lua flags=allow-oom
-- TURN: takes the turn to do what one process at a time does, or goes on with it. A turn ends by itself, so another process takes
-- over from one that hangs. Redis may be out of memory: what frees memory (copying, trimming, rolling up) waits for a turn.
--
-- BOUND  10  one name
-- KEYS  1 turn (string: who has it)
-- ARGV  1 now (ms or empty)  2 who  3 for how long (ms)
-- RETURNS outcome, now
--   taken
--   others  somebody else has it; nothing happens
--@include clock
local now = store_now(ARGV[1])
local holder = redis.call("GET", KEYS[1])
if holder and holder ~= ARGV[2] then return { "others", now } end
redis.call("SET", KEYS[1], ARGV[2], "PX", ARGV[3])
return { "taken", now }
