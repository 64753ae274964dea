#!lua flags=no-writes
-- INSPECT: is this key good, what are its five numbers, and what is known of a task? Reads only.
--
-- KEYS  1 key (hash)  2 window (list)  3 slots (set)  4 task (hash; only for a poll)
-- ARGV  1 now (ms or empty)  2 tiers  3 account id  4 how old a cached answer may be (ms)
-- RETURNS outcome, now, rate limit, remaining, reset (ms), concurrent limit, active, tier, then
--   known        the key is good; no task was asked for
--   unknown_key  no such key, revoked or expired; the five numbers are zeros
--   not_found    no such task, or another account's
--   task         request id, key id of its creator, fresh (1: the data may be answered as it is), status,
--                data (JSON), bound at (ms)
local now = store_now()
local key = read_key(KEYS[1], now)
if not key or not key.usable then return reply("unknown_key", now) end
if not KEYS[4] then return reply("known", now, key, KEYS[2], KEYS[3]) end

local task = redis.call("HMGET", KEYS[4], "account_id", "request_id", "key_id", "observed_at", "status", "data",
  "created_at")
if task[1] ~= ARGV[3] then return reply("not_found", now, key, KEYS[2], KEYS[3]) end
local age = now - tonumber(task[4] or 0)
local fresh = (task[4] and age >= 0 and age < tonumber(ARGV[4])) and 1 or 0
return reply("task", now, key, KEYS[2], KEYS[3], task[2], task[3], fresh, task[5] or "", task[6] or "",
  tonumber(task[7]))
