#!lua flags=no-writes
-- CREDITS: the account as GET /credits shows it, with the limits that are enforced for this key. Reads only.
--
-- KEYS  1 key (hash)  2 window (list)  3 slots (set)  4 account (hash)  5 recent transactions (list)
-- ARGV  1 now (ms or empty)  2 tiers
-- RETURNS outcome, now, rate limit, remaining, reset (ms), concurrent limit, active, tier, then
--   known        daily limit, credits that can be spent, total used, total requests, then one line a
--                transaction, most recent first
--   unknown_key  no such key, revoked or expired; the five numbers are zeros
local now = store_now()
local key = read_key(KEYS[1], now)
if not key or not key.usable then return reply("unknown_key", now) end
local account = redis.call("HMGET", KEYS[4], "balance", "held", "total_used", "total_requests")
return reply("known", now, key, KEYS[2], KEYS[3], key.daily_limit,
  int(tonumber(account[1] or 0) - tonumber(account[2] or 0)), account[3] or "0", tonumber(account[4] or 0),
  unpack(redis.call("LRANGE", KEYS[5], 0, -1)))
