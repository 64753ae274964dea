#!lua flags=allow-oom
-- OBSERVE: records what the upstream says of a task. Completed or failed ends it, once: the slot is freed, a failed task
-- is refunded if it was charged (include/refund.lua says who may). The end of a task never changes.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  250  one task; the window is searched by halves
-- KEYS  1 task (string)  2 request (hash)  3 account (hash)  4 slots of the creating key (set)  5 polls (zset: request id by ms)
--       6 ledger (stream)  7 done (zset: request id by the ms when it may be forgotten)
--       8 key  9 window  10 slots of the polling key (only for a client's poll)
-- ARGV  1 now (ms or empty)  2 tiers  3 request id  4 account id
--       5 status: pending, processing, completed, failed; gone (404); expired (older than the maximum age);
--         released (by an operator)
--       6 the task's data (JSON; for gone, expired and released: what is answered once it has ended as failed)
--       7 refund failed tasks (1 or 0)  8 ms until the sweeper may poll again
--       9 how many 404s in a row  10 over how many ms make a task gone
--       11 of an operator: request id, a space, who; else empty
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
--@include audit
--@include clock
--@include ended
--@include key
--@include numbers
--@include refund
--@include reply
--@include retention
--@include shared
--@include task
--@unless_frozen KEYS[2]
local now = store_now(ARGV[1])
local task, request, account = KEYS[1], KEYS[2], KEYS[3]
local request_id, account_id, status, data = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local key = KEYS[8] and read_key(KEYS[8], now, ARGV[2])

local limited = redis.call("HGET", account, "limited")
local shared = limited and read_shared(account, limited, now)
if key then key.shared = shared end
local kept = read_task(task) or { request_id = request_id, status = "", data = "" }
local record = redis.call("HMGET", request, "state", "price", "endpoint", "task_id", "uncollected", "gone_count",
  "gone_since", "key_id", "bound_at", "retention_ms", "max_age_ms", "admitted_at", "due_at", "refunded")
local state = record[1]

local function keep()
  local owner = (kept.is_disputed and "!" or "") .. task_text(request_id, record[8], account_id, record[9])
  redis.call("SET", task, owner .. " " .. int(now) .. " " .. status .. " " .. data)
  kept.status, kept.data = status, data
end

local function answer(outcome, refunded, ...)
  return reply(outcome, now, key, KEYS[9], KEYS[10], kept.status, kept.data, int(refunded or 0), ...)
end

if kept.request_id ~= request_id then
  -- A poll that comes after its request was collected: what is known of the task is another account's.
  kept.status, kept.data = "", ""
  return answer("missing")
end
if state == "finished" then
  -- A poll that reports the known end again may carry fresher links. A poll that reports another end is ignored.
  if kept.status == status and not kept.is_disputed then keep() end
  redis.call("ZREM", KEYS[5], request_id)
  return answer("already_finished")
end
if state ~= "bound" then return answer("missing") end
local is_ours = status == "expired" or status == "released"
if kept.is_disputed and not is_ours then
  redis.call("ZADD", KEYS[5], int(now + tonumber(ARGV[8])), request_id)
  return answer("disputed", 0, tonumber(record[9]), record[11] or "")
end

if status == "gone" then
  local count = tonumber(record[6] or 0) + 1
  local since = tonumber(record[7] or now)
  if count < tonumber(ARGV[9]) or now - since < tonumber(ARGV[10]) then
    redis.call("ZADD", KEYS[5], int(now + tonumber(ARGV[8])), request_id)
    redis.call("HSET", request, "gone_count", int(count), "gone_since", int(since))
    return answer("observed")
  end
elseif record[6] then
  redis.call("HDEL", request, "gone_count", "gone_since")
end

local ended_by = status
if status == "gone" or is_ours then
  status = "failed"
else
  ended_by = "upstream"
end
if not is_final(status) then
  keep()
  redis.call("ZADD", KEYS[5], int(now + tonumber(ARGV[8])), request_id)
  return answer("observed")
end

-- While a Redis Cluster migrates the slot key by key, a command on a name that has moved fails, and earlier writes stay. The
-- sweeper polls again as long as `polls` lists the request. So the writes that can run twice come before the refund. After
-- that only the removal from `polls` can fail: all other names were read above.
redis.call("SREM", KEYS[4], request_id)
if shared then redis.call("SREM", shared.slots, request_id) end
redis.call("ZADD", KEYS[7], forget_at(now, record[10]), request_id)
note_ended(request, now, request_id, account_id, record[8], record[3], status, record[9])
local refunded = 0
if status == "failed" and ARGV[7] == "1" then
  refunded = post_refund(account, KEYS[6], now, account_id, request_id, {
    name = request, price = record[2], endpoint = record[3], task_id = record[4], uncollected = record[5],
    key_id = record[8], refunded = record[14],
    -- Where the store had forgotten the request before its BIND, `due_at` says when it was admitted.
    admitted_at = record[12] or record[13],
  }, ARGV[11] ~= "" and { by = by_of(ARGV[11]) } or nil)
end
keep()
redis.call("HSET", request, "state", "finished", "status", status, "ended_by", ended_by, "finished_at", int(now))
if ARGV[11] ~= "" then
  write_audit(request, now, ARGV[11], "task.release", account_id, record[4] or request_id, { state = "bound" },
    { state = "finished", status = status, refunded = int(refunded) })
end
redis.call("ZREM", KEYS[5], request_id)
return answer("finished", refunded)
