#!lua flags=allow-oom
-- QUEUE-DELIVERY: an operator has an event sent to an endpoint: one that it got before, or a test.
--
-- BOUND  100  one delivery
-- `endpoint_id` is an endpoint of the account, or its pseudo endpoint for addresses that requests name (`callback@<account id>`).
-- `actor` is the request id, a space, and who. `kind` and `data` (JSON) are of a test; both are empty to send one again.
-- RETURNS outcome, now
--   queued    it is due now, and its schedule begins anew; then the event's id
--   sending   a gateway sends it now, and it is sent once more afterwards; then the event's id
--   closed    the account is closed; nothing happens
--   disabled  the endpoint is disabled; nothing happens
--   full      too many wait already; nothing happens
--   missing   the account has no such endpoint, or the endpoint no such delivery; nothing happens
--@keys endpoint event
--@args now account_id endpoint_id event_id actor kind data
--@include audit deliveries events numbers
--@unless_frozen endpoint
local tag = string.match(endpoint, "^tg:{p%d+}")
local record = call("HMGET", endpoint, "account_id", "status", "is_slow")
local is_callback = endpoint_id == callback_of(account_id)
if is_callback then record = { account_id, "enabled" } end
if record[1] ~= account_id or record[2] == "deleted" then return { "missing", now } end
if call("HGET", name_in(tag, "account", account_id), "status") == "closed" then return { "closed", now } end
if record[2] ~= "enabled" then return { "disabled", now } end
if kind ~= "" then
  local id = add_event(endpoint, now, account_id, endpoint_id .. ":" .. kind, kind, event_id, data, data)
  if not id then return { "full", now } end
  write_audit(endpoint, now, actor, "webhook.test", account_id, endpoint_id, {}, { event_id = id })
  return { "queued", now, id }
end
local one = read_delivery(event, endpoint_id)
if not one then return { "missing", now } end
local queue_id, url = endpoint_id, nil
if is_callback then queue_id, url = split_address(call("HGET", event, "url")) end
local lease_end = call("ZSCORE", name_in(tag, "sending", queue_id), event_id)
local is_sending = lease_end and tonumber(lease_end) > now
if one.state ~= "waiting" and count_waiting(tag, queue_id) >= WAITING_MAX then return { "full", now } end
if is_sending then
  one.again = "1"
else
  unqueue_delivery(tag, queue_id, event_id)
  call("ZREM", name_in(tag, "finished-deliveries", endpoint_id), event_id)
  if url then
    -- The queue of its origin may have been forgotten since.
    queue_id = queue_of_address(tag, account_id, url, now)
    call("HSET", event, "url", queue_id .. " " .. url)
    record[3] = call("HGET", name_in(tag, "webhook", queue_id), "is_slow")
  end
  one.state, one.tries, one.at = "waiting", 0, int(now)
  queue_delivery(tag, queue_id, event_id, now, record[3] == "1")
end
write_delivery(event, endpoint_id, one)
write_audit(endpoint, now, actor, "webhook.redeliver", account_id, endpoint_id, {}, { event_id = event_id })
return { is_sending and "sending" or "queued", now, event_id }
