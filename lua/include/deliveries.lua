--@include numbers
-- Deliveries of webhooks. An event is a hash: `event` has what happened, and a field for each endpoint its delivery. A delivery
-- waits in `first-tries` or `retries` of its endpoint by when it is due; while it is sent, that is when its lease ends. An endpoint
-- is in `webhooks-first` and `webhooks-retry` of its partition by when it has something to do for. Decision 0074.
-- An endpoint whose latest try failed or took seconds (`is_slow`) sends first tries from the budget of retries, too: it takes no
-- place of endpoints that answer. One whose first try has not ended is unknown, and has one delivery under way.
-- Messages to addresses that requests name are deliveries of the pseudo endpoint `callback@<account id>`. Each origin has a queue
-- `callback@<account id>@<hash>`, which waits and is paced as an endpoint. The field `url` of the event is its queue and the address.

-- Deliveries that may wait for an endpoint, and those of one that are kept once they have ended: fewer where events take more than
-- half of what they may, so that history leaves room for what waits.
local WAITING_MAX = 10000
local FINISHED_MAX = 1000
local FINISHED_MIN = 20
-- About what Redis takes, in bytes: for an event beside its data, and for each of its deliveries with a short answer.
local EVENT_BYTES = 300
local DELIVERY_BYTES = 400
local SHORT_ANSWER_BYTES = 100
-- Bounds of an account and of a partition, for all events with their deliveries and answers.
local ACCOUNT_BYTES_MAX = 8 * 1024 * 1024
local PARTITION_BYTES_MAX = 16 * 1024 * 1024
-- Origins of an account that have queues of their own. While all of these have something waiting, further ones share one queue.
local ORIGINS_MAX = 16

local function name_in(tag, kind, id)
  return tag .. ":" .. kind .. ":" .. id
end

-- The pseudo endpoint of an account for messages to addresses that requests name.
local function callback_of(account_id)
  return "callback@" .. account_id
end

local function owner_of(queue_id)
  return string.match(queue_id, "^(callback@[^@]+)@") or queue_id
end

-- Queue and address of an event that a request's address is told of, from its field `url`.
local function split_address(text)
  return string.match(text or "", "^(%S+) (.*)$")
end

-- A delivery as a table: state (waiting, delivered or failed), tries of its schedule, how often it was leased, when it is due
-- or has ended (ms), whether it is sent once more after this try, when its latest try ended (ms), how long that took (ms), the HTTP
-- status (0: none) and the text of the answer or of what went wrong. nil if the endpoint does not get the event: then there is no text.
local function delivery_of(text)
  if not text then return nil end
  local state, tries, leases, at, again, tried_at, took_ms, status, answer =
    string.match(text, "^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (.*)$")
  return {
    state = state,
    tries = tonumber(tries),
    leases = tonumber(leases),
    at = at,
    again = again,
    tried_at = tried_at,
    took_ms = took_ms,
    status = status,
    answer = answer,
  }
end

local function read_delivery(event, endpoint_id)
  return delivery_of(call("HGET", event, endpoint_id))
end

local function write_delivery(event, endpoint_id, one)
  call("HSET", event, endpoint_id, table.concat({ one.state, int(one.tries), int(one.leases), one.at, one.again, one.tried_at,
    one.took_ms, one.status, one.answer }, " "))
end

local function new_delivery(now)
  return { state = "waiting", tries = 0, leases = 0, at = int(now), again = "0", tried_at = "0", took_ms = "0", status = "0",
    answer = "" }
end

-- Adds an endpoint to a lane of its partition, or brings it forward.
local function bring_forward(tag, endpoint_id, lane, at)
  call("ZADD", tag .. ":webhooks-" .. lane, "LT", int(at), endpoint_id)
end

-- When the first of a sorted set is due (ms); nil if it is empty. Numbers as texts: Redis writes others out with 17 digits first.
local function first_score(name)
  return tonumber(call("ZRANGE", name, "0", "0", "WITHSCORES")[2])
end

-- Puts an endpoint where it belongs in the lanes of its partition: at the end of what is due, so that all have their turn.
-- `has_room` is false while as many of its deliveries are under way as may be. Returns when the first of its deliveries is due (ms);
-- nil if none waits, or the endpoint is disabled.
local function schedule_endpoint(tag, endpoint_id, now, is_enabled, is_slow, has_room)
  local first = is_enabled and first_score(name_in(tag, "first-tries", endpoint_id))
  local retry = is_enabled and first_score(name_in(tag, "retries", endpoint_id))
  local due = math.min(first or math.huge, retry or math.huge)
  if is_slow then first, retry = nil, due < math.huge and due end
  local earliest = has_room and now or first_score(name_in(tag, "sending", endpoint_id)) or now
  for lane, at in pairs({ first = first or false, retry = retry or false }) do
    if at then
      call("ZADD", tag .. ":webhooks-" .. lane, int(math.max(at, earliest)), endpoint_id)
    else
      call("ZREM", tag .. ":webhooks-" .. lane, endpoint_id)
    end
  end
  return due < math.huge and due or nil
end

-- Adds to what the events of an account, and of its partition, take (bytes).
local function count_bytes(tag, account_id, bytes)
  local totals = tag .. ":webhook-totals"
  call("HINCRBY", totals, " bytes", int(bytes))
  if call("HINCRBY", totals, account_id, int(bytes)) <= 0 then call("HDEL", totals, account_id) end
end

-- True if an account, or its partition, has less room than so many bytes in this share of what it may take.
local function lacks_room(tag, account_id, bytes, share)
  local used = call("HMGET", tag .. ":webhook-totals", account_id, " bytes")
  return tonumber(used[1] or 0) + bytes > share * ACCOUNT_BYTES_MAX
    or tonumber(used[2] or 0) + bytes > share * PARTITION_BYTES_MAX
end

-- Bytes of an answer beyond a short one.
local function answer_bytes(answer)
  return math.max(0, #answer - SHORT_ANSWER_BYTES)
end

-- Counts an answer in place of the one before. Returns it; only its beginning if there is no room for more.
local function count_answer(tag, account_id, before, answer)
  local more = answer_bytes(answer) - answer_bytes(before)
  if more > 0 and lacks_room(tag, account_id, more, 1) then
    -- Without a character that is cut.
    answer = string.gsub(string.sub(answer, 1, SHORT_ANSWER_BYTES), "[\192-\255]?[\128-\191]*$", "")
    more = -answer_bytes(before)
  end
  if more ~= 0 then count_bytes(tag, account_id, more) end
  return answer
end

-- Queues a delivery for its first try.
local function queue_delivery(tag, queue_id, event_id, now, is_slow)
  call("ZADD", name_in(tag, "first-tries", queue_id), int(now), event_id)
  call("HINCRBY", tag .. ":webhook-totals", " waiting", "1")
  bring_forward(tag, queue_id, is_slow and "retry" or "first", now)
end

-- How many deliveries of a queue wait, those that are being sent included.
local function count_waiting(tag, queue_id)
  return call("ZCARD", name_in(tag, "first-tries", queue_id)) + call("ZCARD", name_in(tag, "retries", queue_id))
end

-- Forgets the queue of an origin, which is empty.
local function forget_queue(tag, queues, queue_id)
  call("ZREM", queues, queue_id)
  call("DEL", name_in(tag, "webhook", queue_id))
  for _, lane in ipairs({ "webhooks-first", "webhooks-retry" }) do call("ZREM", tag .. ":" .. lane, queue_id) end
end

-- The queue for an address that a request names. Beyond the bound an origin takes the place of one whose queue is empty.
local function queue_of_address(tag, account_id, url, now)
  local owner, queues = callback_of(account_id), name_in(tag, "callback-queues", account_id)
  local id = owner .. "@" .. string.sub(redis.sha1hex(string.match(url, "^%a+://[^/?#]+") or url), 1, 16)
  if not call("ZSCORE", queues, id) and call("ZCARD", queues) >= ORIGINS_MAX then
    local has_place = false
    for _, other in ipairs(call("ZRANGE", queues, 0, -1)) do
      if not has_place and count_waiting(tag, other) == 0 then
        forget_queue(tag, queues, other)
        has_place = true
      end
    end
    if not has_place then return owner end
  end
  call("ZADD", queues, int(now), id)
  return id
end

-- Counts a delivery that is never made, and says so at its endpoint.
local function drop_delivery(tag, endpoint_id, now)
  local endpoint = name_in(tag, "webhook", endpoint_id)
  call("HINCRBY", endpoint, "dropped", 1)
  call("HSET", endpoint, "dropped_at", int(now))
  call("HINCRBY", tag .. ":webhook-totals", " dropped", 1)
end

-- Takes a delivery out of the queue, if it is in it. Returns whether it was.
local function unqueue_delivery(tag, queue_id, event_id)
  local is_removed = call("ZREM", name_in(tag, "first-tries", queue_id), event_id) == 1
    or call("ZREM", name_in(tag, "retries", queue_id), event_id) == 1
  if is_removed then call("HINCRBY", tag .. ":webhook-totals", " waiting", "-1") end
  return is_removed
end

-- Forgets a delivery, and its event once no other endpoint has it. Returns whether it still waited.
local function remove_delivery(tag, endpoint_id, event_id)
  local event = name_in(tag, "event", event_id)
  local stored = call("HMGET", event, "event", "url", endpoint_id)
  local queue_id, address, fields = endpoint_id, "", { endpoint_id }
  if string.sub(endpoint_id, 1, 9) == "callback@" and stored[2] then
    queue_id, address = split_address(stored[2])
    fields[2] = "url"
  end
  local has_waited = unqueue_delivery(tag, queue_id, event_id)
  call("ZREM", name_in(tag, "sending", queue_id), event_id)
  for _, list in ipairs({ "deliveries", "finished-deliveries" }) do call("ZREM", name_in(tag, list, endpoint_id), event_id) end
  if not stored[3] then return has_waited end
  call("HDEL", event, unpack(fields))
  local bytes = DELIVERY_BYTES + #address + answer_bytes(delivery_of(stored[3]).answer)
  if call("HLEN", event) == 1 then
    bytes = bytes + #stored[1] + EVENT_BYTES
    call("DEL", event)
  end
  count_bytes(tag, string.match(stored[1], "^%S+ %S+ (%S+)"), -bytes)
  return has_waited
end

-- Notes that a delivery of an account has ended, and forgets those that ended first.
local function finish_delivery(tag, account_id, queue_id, event_id, now)
  unqueue_delivery(tag, queue_id, event_id)
  local endpoint_id = owner_of(queue_id)
  local finished = name_in(tag, "finished-deliveries", endpoint_id)
  call("ZADD", finished, int(now), event_id)
  local kept = lacks_room(tag, account_id, 0, 0.5) and FINISHED_MIN or FINISHED_MAX
  for _ = 1, math.min(2, call("ZCARD", finished) - kept) do
    remove_delivery(tag, endpoint_id, call("ZRANGE", finished, "0", "0")[1])
  end
end
