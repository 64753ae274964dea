#!lua flags=allow-oom
-- BIND: the upstream gave a task id; the hold becomes a consume entry and the slot follows the task.
-- A hold that is void by now (the gateway was paused) is bound all the same: charged if the balance allows and no other
-- request can have been charged for its Idempotency-Key, else uncollected, its slot taken even above the limit.
-- A request of price 0 passed unmetered while the store was away, and was never admitted: it takes no slot and no credits.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  150  one request
-- `price_text` is in credits (0: unmetered), `endpoint` a path. `claim` is empty where the gateway has claimed the task id
-- before. `poll_ms`: until the sweeper may poll. Without an Idempotency-Key, `idempotency`, `response` (the answer's data,
-- JSON), `fingerprint` and `digest` are empty. `max_age_ms` is of the task, `upstream` names which one made it. `admission`:
-- when the request was admitted (ms; empty if it is not known).
-- RETURNS outcome, now; the numbers of the headers are those of the admission
--   bound        charged, or unmetered (also when it was bound to this task id before)
--   late         the hold was void; charged now
--   uncollected  the hold was void, and the balance does not allow the price, or the Idempotency-Key is another request's by
--                now, which is or will be charged for it, or its record has expired before its time, so another request
--                may have been charged; nothing charged (also when it was so before)
--   conflict     this request has another task, or the task id belongs to another request and is disputed from now on
--                if that is another account's or its task has ended; else nothing happens
--   forgotten    the request has no record, and COLLECT has deleted its record, or that of a request of this account that
--                was admitted later. It may have been charged, so nothing happens
--@keys request account slots polls ledger task done holds key_name claim? idempotency?
--@args now request_id account_id key_id price_text endpoint task_id poll_ms response fingerprint idempotency_ms digest max_age_ms upstream retention_ms admission
--@include claim
--@include clock
--@include dispute
--@include ended
--@include ledger
--@include limits
--@include month
--@include numbers
--@include owner
--@include spent
--@include task
--@include unknown
--@unless_frozen request

local record = call("HMGET", request, "state", "price", "admitted_at", "unknown", "details")
local state = record[1]
-- What a request that is held has not, or nobody asks for.
local earlier = state ~= "held" and call("HMGET", request, "task_id", "retention_ms", "uncollected", "first_void_id",
  "account_at")
if not state and admission ~= "" then
  -- The record proves a charge for longer than a BIND may be sent, unless the clock has stepped. Decision 0014.
  local collected_until = call("HGET", account, "collected_until")
  if collected_until and tonumber(admission) <= tonumber(collected_until) then return { "forgotten", now } end
end
-- What was fixed at admission counts; the arguments only for a request that the store has forgotten.
local price = (record[2] or price_text) + 0
local is_unmetered = price == 0
if earlier and earlier[1] and earlier[1] ~= task_id then return { "conflict", now } end
-- The first write takes the task id in this partition, the second one over all. They fail if another request owns the id;
-- no later write can fail.
local bound_at = int(now)
local text = task_text(request_id, key_id, account_id, bound_at)
local owner = call("SET", task, text, "NX", "GET")
local noted = owner and read_noted(owner)
if noted then
  -- The claim has given this request the task id, so a mark for another one is out of date.
  local is_disputed = read_owner(owner) == request_id and noted ~= account_id
  call("SET", task, (is_disputed and "!" or "") .. text)
elseif owner and read_owner(owner) ~= request_id then
  dispute(task, account_id)
  return { "conflict", now }
end
if state == "bound" or state == "finished" then return { earlier[3] and "uncollected" or "bound", now } end
local others = claim and taken_by_other(claim, request_id, task)
if others then
  call("DEL", task)
  dispute(others, account_id)
  return { "conflict", now }
end

local first = idempotency and call("HMGET", idempotency, "request_id", "void_until", "first_void_id")
local is_others = first and first[1] and first[1] ~= request_id
-- The entry that VOID left is gone, which only a step of the clock does while a BIND may come. Decision 0014.
local is_lost = earlier and earlier[4] and earlier[4] ~= (first and first[3])
local outcome, spent, shared = "bound", nil, nil
if state ~= "held" and not is_unmetered then
  local money = call("HMGET", account, "balance", "held", "limited")
  local covered = tonumber(money[1] or 0) - tonumber(money[2] or 0) >= price
  outcome = covered and not is_others and not is_lost and "late" or "uncollected"
  spent = read_spent(key_name)
  shared = money[3] and read_shared(account, money[3], now)
  if shared then read_shared_use(shared) end
end

local admitted_at = record[3] and record[3] + 0 or tonumber(admission)
local due_at = int(now + poll_ms)
if outcome ~= "uncollected" then
  local more = is_unmetered and { "reason", "unmetered" } or nil
  -- Once the record is gone, a refund takes the month of the charge, less an hour, for that of the admission (`admittedMs` in
  -- src/scripts/refund.ts). The few charges of which that is wrong say when it was. Most are of one day with it.
  local hour_ago = now - 3600000
  local is_other_day = admitted_at and math.floor(admitted_at / DAY_MS) ~= math.floor(hour_ago / DAY_MS)
  if is_other_day and month_of(admitted_at) ~= month_of(hour_ago) then
    more = { "admitted_at", int(admitted_at), unpack(more or {}) }
  end
  if record[5] then more = { "details", record[5], unpack(more or {}) } end
  post(account, ledger, bound_at, account_id, "consume", -price, state == "held" and -price or 0, price, endpoint,
    task_id, request_id, key_id, more)
end
if state == "held" then
  if record[4] then remove_unknown(account, request_id) end
  call("HSET", request, "state", "bound", "task_id", task_id, "bound_at", bound_at, "max_age_ms", max_age_ms,
    "upstream", upstream)
  call("ZREM", holds, request_id)
else
  call("HSET", request, "state", "bound", "account_id", account_id, "key_id", key_id, "price", int(price),
    "endpoint", endpoint, "task_id", task_id, "bound_at", bound_at, "max_age_ms", max_age_ms, "upstream", upstream)
  if outcome == "uncollected" then
    call("HSET", request, "uncollected", "1")
    note_ended(request, now, request_id, account_id, key_id, endpoint, "uncollected", price)
  end
  if outcome == "late" then add_spent(spent, admitted_at, price) end
  if not earlier[2] then call("HSET", request, "retention_ms", retention_ms) end
  -- A request that had no record has one from here on, and COLLECT needs to know when it was admitted.
  if admission ~= "" then call("HSETNX", request, "due_at", admission) end
  call("PERSIST", request)
  if is_unmetered then
    call("HSET", request, "unmetered", "1")
  else
    call("SADD", slots, request_id)
  end
  if shared then call("SADD", shared.slots, request_id) end
  call("ZREM", done, request_id)
  -- VOID reduced the day's count only if the key was still on the day of admission. A key's day never goes back: if it is
  -- that day now, it was at the VOID, so the request is counted again.
  if record[3] and change_counts(key_name, record[3], 1) then
    local late, day = call("HMGET", key_name, "late_day", "late_count"), math.floor(record[3] / DAY_MS)
    local late_count = tonumber(late[1]) == day and tonumber(late[2]) or 0
    call("HSET", key_name, "late_day", int(day), "late_count", int(late_count + 1))
  end
  local account_at = shared_stamp(shared, earlier[5])
  if account_at then change_counts(account, account_at, 1) end
end
call("ZADD", polls, due_at, request_id)
-- What the balance did not cover takes no Idempotency-Key: a repeat would be answered with a video for nothing.
if idempotency and (outcome ~= "uncollected" or is_lost and not is_others) then
  call("HSET", idempotency, "request_id", request_id, "fingerprint", fingerprint, "task_id", task_id,
    "response", response, "due_at", due_at)
  -- The entry stays while an earlier request with this Idempotency-Key may still be bound. Without it, that request would
  -- be charged, too.
  call("PEXPIRE", idempotency, int(math.max(tonumber(idempotency_ms), tonumber(first[2] or 0) - now)))
  call("HSET", request, "idempotency", digest)
end
return '["' .. outcome .. '",' .. bound_at .. "]"
