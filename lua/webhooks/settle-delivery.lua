#!lua flags=allow-oom
-- SETTLE-DELIVERY: what came of a try. A result without the number of the latest lease is ignored: another gateway has taken the
-- delivery over. So is one of a delivery that is due anew since: it is a result that came twice, or an operator wished it once more. An endpoint that answers 410, or has only failed for days, is disabled; the audit says so.
--
-- BOUND  300  one delivery
-- `queue_id` is the endpoint's id, or the queue of an address that a request names; `endpoint` is its record. `lease` is its number. `result` is delivered, failed or gone. `retry_ms`: when the next try comes, from now; empty after the last one.
-- `status` is that of HTTP (0: none), `response` the text of the answer or of what went wrong, `took_ms` how long it took; beyond `slow_ms` the
-- endpoint is slow. `due_at` is when the delivery was due as it was leased (ms), `url` where it was sent. One that has failed `failures_min` times, and for `disable_ms`, is disabled.
-- RETURNS outcome, now, whether more of the endpoint is due (1 or 0)
--   delivered  it succeeded
--   again      it succeeded, or failed for the last time, and is sent once more, as an operator wished meanwhile
--   retried    it failed, and another try follows
--   failed     it failed for the last time
--   disabled   it failed, and the endpoint is disabled from now on
--   fenced     another lease has it, or it has ended; nothing happens
--@keys endpoint event
--@args now queue_id event_id per_endpoint lease result retry_ms status response took_ms slow_ms failures_min disable_ms due_at url
--@include deliveries endpoints numbers
--@unless_frozen endpoint
local tag = string.match(endpoint, "^tg:{p%d+}")
local endpoint_id = owner_of(queue_id)
local one = read_delivery(event, endpoint_id)
if not one or one.state ~= "waiting" or int(one.leases) ~= lease or one.at ~= due_at then return { "fenced", int(now), "0" } end

local record = call("HMGET", endpoint, "account_id", "status", "is_slow", "failing_since", "failures", "url")
-- The answer of an earlier address says nothing of the present one.
local is_moved = record[6] and record[6] ~= url
if is_moved and result == "gone" then result = "failed" end
local sending = name_in(tag, "sending", queue_id)
call("ZREM", sending, event_id)
one.tried_at, one.took_ms, one.status = int(now), took_ms, status
local account_id = record[1] or string.match(endpoint_id, "^callback@(.*)$")
one.answer = count_answer(tag, account_id, one.answer, response)
local is_again = one.again == "1"
one.again = "0"

local outcome = result == "delivered" and "delivered" or "failed"
if result == "failed" and retry_ms ~= "" then outcome = "retried" end
if is_again then outcome = "again" end
if outcome == "retried" then
  one.tries = one.tries + 1
  one.at = int(now + tonumber(retry_ms))
  call("ZREM", name_in(tag, "first-tries", queue_id), event_id)
  call("ZADD", name_in(tag, "retries", queue_id), one.at, event_id)
elseif is_again then
  one.tries, one.at = 0, int(now)
  call("ZREM", name_in(tag, "retries", queue_id), event_id)
  call("ZADD", name_in(tag, "first-tries", queue_id), one.at, event_id)
else
  one.tries = one.tries + 1
  one.state, one.at = outcome, int(now)
end
write_delivery(event, endpoint_id, one)
if one.state ~= "waiting" then finish_delivery(tag, account_id, queue_id, event_id, now) end

local is_slow = result ~= "delivered" or tonumber(took_ms) > tonumber(slow_ms)
local pace = is_slow and "1" or "0"
if record[3] ~= pace then call("HSET", endpoint, "is_slow", pace) end
local is_enabled = record[2] == "enabled" or not record[1]
if result == "delivered" then
  if record[4] then call("HDEL", endpoint, "failing_since", "failures") end
  if record[1] then call("HSET", endpoint, "delivered_at", int(now)) end
elseif record[1] and not is_moved then
  local failing_since = record[4] or int(now)
  local failures = tonumber(record[5] or 0) + 1
  call("HSET", endpoint, "failing_since", failing_since, "failures", int(failures))
  local has_failed_long = failures >= tonumber(failures_min) and now - tonumber(failing_since) >= tonumber(disable_ms)
  if record[2] == "enabled" and (result == "gone" or has_failed_long) then
    is_enabled = false
    outcome = "disabled"
    disable_endpoint(endpoint, endpoint_id, record[1], now, result == "gone" and "gone" or "failing", " system")
  end
end
local due = schedule_endpoint(tag, queue_id, now, is_enabled, is_slow, call("ZCARD", sending) < tonumber(per_endpoint))
return { outcome, int(now), int(due and due <= now and 1 or 0) }
