#!lua flags=allow-oom
-- CLAIM: takes work that is due in one list of a partition. What is taken is out of other sweepers' sight for the lease, so
-- two gateways do not do the same, and work of a gateway that died comes back when the lease ends.
--
-- KEYS  1 holds or polls (zset: request id by ms)
-- ARGV  1 now (ms or empty)  2 tiers (unused)  3 how many at the most  4 lease (ms)
-- RETURNS now, then the request ids
local now = store_now()
local ids = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", int(now), "LIMIT", 0, tonumber(ARGV[3]))
local until_ms = int(now + tonumber(ARGV[4]))
for i = 1, #ids do redis.call("ZADD", KEYS[1], "XX", until_ms, ids[i]) end
return { now, unpack(ids) }
