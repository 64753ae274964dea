#!lua flags=allow-oom
-- CLEAN-DELIVERIES: forgets some old deliveries of the endpoint of a partition whose turn it is, and all of one that was deleted,
-- and then the endpoint. The names of endpoints and events are built here, so they are not among KEYS; they are in the same partition.
--
-- BOUND  2000  the deliveries that are asked for
-- `clean` is a zset: endpoint id by when it has something to forget (ms). `keep_ms` is how long deliveries are kept, `most_text` how
-- many are forgotten.
-- RETURNS outcome, now
--   cleaned  how many were forgotten; whether another call has something to do (1 or 0)
--   idle     nothing is to be forgotten
--@keys clean
--@args now keep_ms most_text
--@include deliveries numbers
--@unless_frozen clean
-- Deliveries that get old within this time are forgotten in one call.
local EVERY_MS = 60000
local tag, most = string.match(clean, "^tg:{p%d+}"), tonumber(most_text)
local endpoint_id = call("ZRANGEBYSCORE", clean, "-inf", int(now), "LIMIT", 0, 1)[1]
if not endpoint_id then return { "idle", now } end
local endpoint, deliveries = name_in(tag, "webhook", endpoint_id), name_in(tag, "deliveries", endpoint_id)
local status = call("HGET", endpoint, "status")
local before = status == "deleted" and "+inf" or int(now - tonumber(keep_ms))
local ids = call("ZRANGEBYSCORE", deliveries, "-inf", before, "LIMIT", 0, most)
for _, event_id in ipairs(ids) do
  -- It was too old before its schedule ended: its endpoint was disabled, or asked for long waits.
  if remove_delivery(tag, endpoint_id, event_id) and status ~= "deleted" then drop_delivery(tag, endpoint_id, now) end
end
local oldest = first_score(deliveries)
if oldest then
  local is_more = #ids == most
  call("ZADD", clean, is_more and int(now) or int(math.max(now + EVERY_MS, oldest + keep_ms)), endpoint_id)
else
  call("ZREM", clean, endpoint_id)
  for _, lane in ipairs({ "webhooks-first", "webhooks-retry" }) do call("ZREM", tag .. ":" .. lane, endpoint_id) end
  local account_id = string.match(endpoint_id, "^callback@(.*)$")
  local queues = account_id and name_in(tag, "callback-queues", account_id)
  for _, queue_id in ipairs(queues and call("ZRANGE", queues, 0, -1) or {}) do forget_queue(tag, queues, queue_id) end
  if not status or status == "deleted" then call("DEL", endpoint) end
end
return { "cleaned", now, #ids, call("ZCOUNT", clean, "-inf", int(now)) > 0 and 1 or 0 }
