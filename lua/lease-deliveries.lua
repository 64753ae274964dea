#!lua flags=allow-oom
-- LEASE-DELIVERIES: leases deliveries of a partition that are due, those of the endpoint first that waits longest. A leased one is
-- hidden until its lease ends, which is later than its try, so no two gateways send it at a time; a gateway that died loses its
-- lease. Each lease has a number, without which SETTLE-DELIVERY takes no result. The names of endpoints and events are built
-- here, so they are not among KEYS; they are in the same partition.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  1500  the deliveries and endpoints that are asked for
-- `first` and `retry` are zsets: endpoint id by when it has something to do (ms). `first_max` and `retry_max` are how many are
-- leased, `per_endpoint` how many of one endpoint may be under way.
-- RETURNS now, then for each delivery {endpoint id, event id, lane, lease, tries, url, event, sealed secret, sealed secret
--   before it}; empty where there is none
--@keys first retry
--@args now first_max retry_max per_endpoint lease_ms
--@include deliveries
--@include numbers
--@unless_frozen first
local ENDPOINTS_MAX = 16
local tag = string.match(first, "^tg:{p%d+}")
local lease_end = int(now + tonumber(lease_ms))
local answer = { now }

-- The endpoint whose secrets sign what goes to an address of a request: the first of the account that is enabled.
local function signing_endpoint(account_id)
  local webhooks = call("HGET", name_in(tag, "account", account_id), "webhooks")
  return string.match(webhooks or "", "^(%S+):")
end

local function secrets_of(endpoint_id)
  local signing = endpoint_id
  local account_id = string.match(endpoint_id, "^callback@(.*)$")
  if account_id then signing = signing_endpoint(account_id) end
  if not signing then return "", "" end
  local record = call("HMGET", name_in(tag, "webhook", signing), "secret", "previous_secret", "previous_until")
  local previous = record[3] and tonumber(record[3]) > now and record[2]
  return record[1] or "", previous or ""
end

-- Leases one delivery; false if it does not wait any more.
local function lease_one(endpoint_id, url, event_id, queue, lane)
  local event = name_in(tag, "event", event_id)
  local one = read_delivery(event, endpoint_id)
  if not one or one.state ~= "waiting" then
    unqueue_delivery(tag, endpoint_id, event_id)
    return false
  end
  one.leases = one.leases + 1
  write_delivery(event, endpoint_id, one)
  call("ZADD", queue, lease_end, event_id)
  call("ZADD", name_in(tag, "sending", endpoint_id), lease_end, event_id)
  local stored = call("HMGET", event, "event", "url")
  answer[#answer + 1] = { endpoint_id, event_id, lane, int(one.leases), int(one.tries),
    url or stored[2] or "", stored[1], secrets_of(endpoint_id) }
  return true
end

-- Leases up to `room` deliveries of an endpoint; returns how many it leased.
local function lease_of(endpoint_id, lane, room)
  local record = call("HMGET", name_in(tag, "webhook", endpoint_id), "url", "status", "is_slow")
  local is_enabled = record[2] == "enabled" or string.sub(endpoint_id, 1, 9) == "callback@"
  local sending = name_in(tag, "sending", endpoint_id)
  call("ZREMRANGEBYSCORE", sending, "-inf", int(now))
  local places = tonumber(per_endpoint) - call("ZCARD", sending)
  local leased = 0
  local queues = { "retries", record[3] and "first-tries" or nil }
  if lane == "first" then queues = { not record[3] and "first-tries" or nil } end
  for _, name in ipairs(queues) do
    local queue = name_in(tag, name, endpoint_id)
    local most = is_enabled and math.min(places, room) - leased or 0
    local ids = most > 0 and call("ZRANGEBYSCORE", queue, "-inf", int(now), "LIMIT", 0, int(most)) or {}
    for _, event_id in ipairs(ids) do
      if lease_one(endpoint_id, record[1], event_id, queue, lane) then leased = leased + 1 end
    end
  end
  schedule_endpoint(tag, endpoint_id, now, is_enabled, record[3], leased < places)
  return leased
end

for _, lane in ipairs({ { "first", first, first_max }, { "retry", retry, retry_max } }) do
  local room = tonumber(lane[3])
  local ids = room > 0 and call("ZRANGEBYSCORE", lane[2], "-inf", int(now), "LIMIT", 0, ENDPOINTS_MAX) or {}
  for _, endpoint_id in ipairs(ids) do
    if room > 0 then room = room - lease_of(endpoint_id, lane[1], room) end
  end
end
return answer
