#!lua flags=allow-oom
-- OBSERVE: records what the upstream says of a task. Completed or failed ends it, once: the slot is freed, a failed task
-- is refunded if it was charged (include/refund.lua says who may). Its end never changes here; RECLAIM may correct one that was too old.
--
-- BOUND  250  one task; the window is searched by halves
-- `slots` are those of the creating key; `key_name`, `poller_window` and `poller_slots` are only given for a client's poll.
-- `status` is pending, processing, completed or failed; gone (404), expired (older than the maximum age) or released (by an
-- operator), whose `data` is what is answered once the task has ended as failed. `refunds_failed` is 1 or 0. `gone_max` 404s
-- in a row over `gone_ms` make a task gone. `actor` is of an operator: request id, a space, and who; else empty.
-- RETURNS outcome, now, rate limit, remaining, reset (ms), concurrent limit, active, tier,
--         status, data (JSON), credits refunded by this call
--   observed          not at its end
--   finished          ended by this call
--   already_finished  had ended before; status and data are those of its end
--   disputed          the task id is disputed, and the task has not ended: the upstream may speak of another account's
--                     task, so nothing is kept; status and data are those from before, then also when it was bound (ms)
--                     and its maximum age (ms; empty: restored)
--   missing           no such task or request, or the task is another request's by now; status and data are empty, nothing
--                     happens
--@keys task request account slots due ledger done key_name? poller_window? poller_slots?
--@args now tiers request_id account_id status data refunds_failed poll_ms gone_max gone_ms actor
--@include audit due events limits money numbers refund reply request rollup_note task
--@unless_frozen request
local key = key_name and read_key(key_name, now, tiers)

-- A task that goes on frees no slot and is no event: then only the numbers of a client's poll need the account's limits.
local limited, webhooks
if status == "pending" or status == "processing" then
  limited = key and call("HGET", account, "limited")
elseif has_extras(account) then
  limited, webhooks = unpack(call("HMGET", account, "limited", "webhooks"))
end
local shared = limited and read_shared(account, limited, now)
if key then key.shared = shared end
local kept = read_task(task) or { request_id = request_id, status = "", data = "" }
local record = read_request(request)
local state = record.state

local function keep()
  local owner = (kept.is_disputed and "!" or "") .. task_text(request_id, record.key_id, account_id, record.bound_at)
  call("SET", task, owner .. " " .. int(now) .. " " .. status .. " " .. data)
  kept.status, kept.data = status, data
end

local function answer(outcome, refunded, ...)
  return reply(outcome, now, key, poller_window, poller_slots, kept.status, kept.data, int(refunded or 0), ...)
end

if kept.request_id ~= request_id then
  -- A poll that comes after its request was collected: what is known of the task is another account's.
  kept.status, kept.data = "", ""
  return answer("missing")
end
if state == "finished" then
  -- A poll that reports the known end again may carry fresher links. A poll that reports another end is ignored.
  if kept.status == status and not kept.is_disputed then keep() end
  call("ZREM", due, request_id)
  return answer("already_finished")
end
if state ~= "bound" then return answer("missing") end
local is_ours = status == "expired" or status == "released"
if kept.is_disputed and not is_ours then
  call("ZADD", due, task_score(now + poll_ms), request_id)
  return answer("disputed", 0, tonumber(record.bound_at), record.max_age_ms or "")
end

if status == "gone" then
  local count = tonumber(record.gone_count or 0) + 1
  local since = tonumber(record.gone_since or now)
  if count < tonumber(gone_max) or now - since < tonumber(gone_ms) then
    call("ZADD", due, task_score(now + poll_ms), request_id)
    call("SET", request, changed_request(record.text, state, "gone_count", int(count), "gone_since", int(since)))
    return answer("observed")
  end
elseif record.gone_count then
  record.text = changed_request(record.text, state, "gone_count", false, "gone_since", false)
  call("SET", request, record.text)
end

local ended_by = status
if status == "gone" or is_ours then
  status = "failed"
else
  ended_by = "upstream"
end
if not is_final(status) then
  keep()
  call("ZADD", due, task_score(now + poll_ms), request_id)
  return answer("observed")
end

-- While a Redis Cluster migrates the slot key by key, a command on a name that has moved fails, and earlier writes stay. The
-- sweeper polls again as long as `due` lists the request. So the writes that can run twice come before the refund. After
-- that only the removal from `due` can fail: all other names were read above.
call("SREM", slots, request_id)
if shared then call("SREM", shared.slots, request_id) end
-- The archive's copier follows `done` from one score to the next, so all that ends now is listed at one place: a later score would
-- hide what ends after it.
call("ZADD", done, forget_at(now, record.retention_ms), request_id)
-- A task that ends as too old may complete later, and is then charged again: its record is kept twice as long. COLLECT postpones it.
if ended_by == "expired" and record.retention_ms then
  record.text = changed_request(record.text, state, "retention_ms", int(2 * tonumber(record.retention_ms)))
end
-- A task that was not charged is told to nobody: there is no video for nothing.
local callback = record.callback
if (webhooks or callback) and not record.uncollected then
  add_event(account, now, account_id, webhooks, "task." .. status, request_id, data,
    '{"task_id":"' .. (record.task_id or "") .. '","status":"' .. status .. '"}', callback)
end
note_ended(request, now, request_id, account_id, record.key_id, record.endpoint, status, record.bound_at)
local refunded = 0
if status == "failed" and refunds_failed == "1" then
  refunded = post_refund(account, ledger, now, account_id, request_id, record, actor ~= "" and { by = by_of(actor) } or nil)
end
keep()
call("SET", request, changed_request(record.text, "finished", "status", status, "ended_by", ended_by, "finished_at", int(now),
  "refunded", record.refunded))
if actor ~= "" then
  write_audit(request, now, actor, "task.release", account_id, record.task_id or request_id, { state = "bound" },
    { state = "finished", status = status, refunded = int(refunded) })
end
call("ZREM", due, request_id)
return answer("finished", refunded)
