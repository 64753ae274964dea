#!lua flags=allow-oom
-- LEASE: leases due requests of one list of a partition. A leased request is hidden from other sweepers until the lease
-- ends, so two gateways never do the same work, and the work of a gateway that died is done by another. A request that has
-- ended is removed from the list. The names of the requests are built here, so they are not among KEYS; they are in the
-- same partition.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  2000  the requests that are asked for
-- KEYS  1 holds or polls (zset: request id by ms)
-- ARGV  1 now (ms or empty)  2 maximum number of requests  3 lease (ms)
--       4 prefix of the names of requests
-- RETURNS now, then for each request {id, state, account id, key id, task id, bound at (ms), idempotency digest,
--   maximum age (ms), upstream}; empty where there is none
--@include clock
--@include numbers
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local ids = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", int(now), "LIMIT", 0, tonumber(ARGV[2]))
local until_ms = int(now + tonumber(ARGV[3]))
local answer = { now }
for _, id in ipairs(ids) do
  local record = redis.call("HMGET", ARGV[4] .. id, "state", "account_id", "key_id", "task_id", "bound_at", "idempotency",
    "max_age_ms", "upstream")
  if record[1] == "held" or record[1] == "bound" then
    redis.call("ZADD", KEYS[1], "XX", until_ms, id)
  else
    redis.call("ZREM", KEYS[1], id)
  end
  for field = 1, 8 do record[field] = record[field] or "" end
  answer[#answer + 1] = { id, unpack(record) }
end
return answer
