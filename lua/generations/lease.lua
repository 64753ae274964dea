#!lua flags=allow-oom
-- LEASE: leases due holds or due tasks of a partition. A leased request is hidden from other sweepers until the lease
-- ends, so two gateways never do the same work, and the work of a gateway that died is done by another. A request that has
-- ended is removed from `due`. The names of the requests are built here, so they are not among KEYS; they are in the
-- same partition.
--
-- BOUND  2000  the requests that are asked for
-- `from`: 0 for holds, TASKS_FROM for tasks (include/due.lua).
-- RETURNS now, then for each request {id, state, account id, key id, task id, bound at (ms), idempotency digest,
--   maximum age (ms), upstream}; empty where there is none
--@keys due
--@args now from requests_max lease_ms requests_prefix
--@include due numbers request
--@unless_frozen due
local ids = call("ZRANGEBYSCORE", due, from, int(from + now), "LIMIT", 0, tonumber(requests_max))
local until_ms = now + lease_ms
local answer = { now }
local PARTS = { "state", "account_id", "key_id", "task_id", "bound_at", "idempotency", "max_age_ms", "upstream" }
for _, id in ipairs(ids) do
  local record = read_request(requests_prefix .. id)
  if record.state == "held" or record.state == "bound" then
    call("ZADD", due, "XX", record.state == "held" and int(until_ms) or task_score(until_ms), id)
  else
    call("ZREM", due, id)
  end
  local row = { id }
  for _, part in ipairs(PARTS) do row[#row + 1] = record[part] or "" end
  answer[#answer + 1] = row
end
return answer
