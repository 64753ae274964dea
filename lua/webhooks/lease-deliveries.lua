#!lua flags=allow-oom
-- LEASE-DELIVERIES: leases deliveries of a partition that are due, those of the endpoint first that waits longest. A leased one is
-- hidden until its lease ends, which is later than its try, so no two gateways send it at a time; a gateway that died loses its
-- lease. Each lease has a number, without which SETTLE-DELIVERY takes no result. The names of endpoints and events are built
-- here, so they are not among KEYS; they are in the same partition.
--
-- BOUND  2000  the deliveries and endpoints that are asked for
-- `first` and `retry` are zsets: endpoint id (or queue of an origin) by when it has something to do (ms). `first_max` and `retry_max`
-- are how many are leased, `per_endpoint` how many of one endpoint may be under way; 1 if nothing is known of it. `keys` are the beginnings of secrets that the
-- caller can open: what it cannot sign stays for others.
-- RETURNS now, how many endpoints were left since the caller cannot open their secret, then for each delivery {endpoint id or queue,
--   event id, lane, lease, tries, due, url, event, sealed secret, sealed secrets before it, with spaces}; empty where there is none
--@keys first retry
--@args now first_max retry_max per_endpoint lease_ms keys
--@include deliveries numbers
--@unless_frozen first
local ENDPOINTS_MAX = 16
-- Endpoints that are looked at to find so many whose secrets can be opened.
local LOOKED_AT_MAX = 64
local tag = string.match(first, "^tg:{p%d+}")
local lease_end = int(now + tonumber(lease_ms))
local answer = { now, 0 }

local function is_openable(sealed)
  for prefix in string.gmatch(keys, "%S+") do
    if string.sub(sealed, 1, #prefix) == prefix then return true end
  end
  return sealed == ""
end

-- An endpoint, or the queue of an origin with what signs its messages: the first endpoint of the account that is enabled.
local function read_endpoint(queue_id)
  local own = call("HMGET", name_in(tag, "webhook", queue_id), "url", "status", "is_slow", "secret", "previous_secret", "previous_until")
  local signs, account_id = own, string.match(owner_of(queue_id), "^callback@(.*)$")
  if account_id then
    local signing = string.match(call("HGET", name_in(tag, "account", account_id), "webhooks") or "", "^(%S+):")
    signs = signing and call("HMGET", name_in(tag, "webhook", signing), "url", "status", "is_slow", "secret", "previous_secret",
      "previous_until") or {}
  end
  return {
    url = own[1],
    is_enabled = account_id or own[2] == "enabled",
    is_slow = own[3] == "1",
    is_known = own[3],
    secret = signs[4] or "",
    previous_secret = signs[6] and tonumber(signs[6]) > now and signs[5] or "",
  }
end

-- Leases one delivery; false if it does not wait any more.
local function lease_one(queue_id, endpoint, event_id, queue, lane)
  local event = name_in(tag, "event", event_id)
  local stored = call("HMGET", event, owner_of(queue_id), "event", "url")
  local one = delivery_of(stored[1])
  if not one or one.state ~= "waiting" then
    unqueue_delivery(tag, queue_id, event_id)
    return false
  end
  one.leases = one.leases + 1
  write_delivery(event, owner_of(queue_id), one)
  call("ZADD", queue, lease_end, event_id)
  call("ZADD", name_in(tag, "sending", queue_id), lease_end, event_id)
  local _, address = split_address(stored[3])
  answer[#answer + 1] = { queue_id, event_id, lane, int(one.leases), int(one.tries), one.at, endpoint.url or address or "", stored[2],
    endpoint.secret, endpoint.previous_secret }
  return true
end

-- Leases up to `room` deliveries of an endpoint; returns how many it leased.
local function lease_of(queue_id, endpoint, lane, room)
  local sending = name_in(tag, "sending", queue_id)
  call("ZREMRANGEBYSCORE", sending, "-inf", int(now))
  local places = (endpoint.is_known and tonumber(per_endpoint) or 1) - call("ZCARD", sending)
  local leased = 0
  local queues = { "retries", endpoint.is_slow and "first-tries" or nil }
  if lane == "first" then queues = { not endpoint.is_slow and "first-tries" or nil } end
  for _, name in ipairs(queues) do
    local queue = name_in(tag, name, queue_id)
    local most = endpoint.is_enabled and math.min(places, room) - leased or 0
    local ids = most > 0 and call("ZRANGEBYSCORE", queue, "-inf", int(now), "LIMIT", "0", int(most)) or {}
    for _, event_id in ipairs(ids) do
      if lease_one(queue_id, endpoint, event_id, queue, lane) then leased = leased + 1 end
    end
  end
  schedule_endpoint(tag, queue_id, now, endpoint.is_enabled, endpoint.is_slow, leased < places)
  return leased
end

-- Leases from endpoints that are due, from one of them on; returns how many were looked at, and whether one could be opened.
local function lease_from(at, lane, list, most)
  local room, endpoints = most, 0
  local ids = room > 0 and call("ZRANGEBYSCORE", list, "-inf", int(now), "LIMIT", int(at), int(LOOKED_AT_MAX)) or {}
  for _, queue_id in ipairs(ids) do
    if room <= 0 or endpoints >= ENDPOINTS_MAX then break end
    local endpoint = read_endpoint(queue_id)
    if endpoint.is_enabled and not is_openable(endpoint.secret) then
      answer[2] = answer[2] + 1
    else
      endpoints = endpoints + 1
      room = room - lease_of(queue_id, endpoint, lane, room)
    end
  end
  return #ids, endpoints > 0
end

local function lease_lane(lane, list, most)
  local looked_at, is_served = lease_from(0, lane, list, most)
  if is_served or looked_at < LOOKED_AT_MAX then return end
  -- Secrets that nobody opens any more stay at the head of the list: in turn, some of those behind them are looked at.
  local behind = call("ZCOUNT", list, "-inf", int(now)) - looked_at
  if behind > 0 then lease_from(looked_at + now % behind, lane, list, most) end
end

lease_lane("first", first, tonumber(first_max))
lease_lane("retry", retry, tonumber(retry_max))
return answer
