#!lua flags=allow-oom
-- BIND: the upstream gave a task id; the hold becomes a consume entry and the slot follows the task.
-- A hold that is void by now (the gateway was paused) is bound all the same: charged if the balance allows and no other
-- request can have been charged for its Idempotency-Key, else uncollected, its slot taken even above the limit.
-- A request of price 0 passed unmetered while the store was away, and was never admitted: it takes no slot and no credits.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  150  one request
-- KEYS  1 request (hash)  2 account (hash)  3 slots (set)  4 polls (zset: request id by ms)  5 ledger (stream)
--       6 task (string: who owns the task id)  7 done (zset: request id by the ms when it may be forgotten)
--       8 holds (zset: request id by due ms)  9 key (hash)
--       10 claim (string: request id, partition; empty where the gateway has claimed the task id before)
--       11 idempotency (hash; only with an Idempotency-Key)
-- ARGV  1 now (ms or empty)  2 request id  3 account id  4 key id  5 price (credits; 0: unmetered)  6 endpoint (path)  7 task id
--       8 ms until the sweeper may poll  9 the answer's data (JSON; empty without an Idempotency-Key)
--       10 fingerprint  11 idempotency lifetime (ms)  12 idempotency digest  13 maximum age of the task (ms)
--       14 which upstream made it (a text)  15 retention (ms)
--       16 when the request was admitted (ms; empty if it is not known)
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
--@include claim
--@include clock
--@include dispute
--@include ended
--@include ledger
--@include month
--@include numbers
--@include owner
--@include shared
--@include spent
--@include task
--@include unknown
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local request, account, slots, task = KEYS[1], KEYS[2], KEYS[3], KEYS[6]
local request_id, account_id, task_id = ARGV[2], ARGV[3], ARGV[7]

local record = redis.call("HMGET", request, "state", "task_id", "price", "retention_ms", "admitted_at",
  "uncollected", "first_void_id", "account_at", "unknown")
local state = record[1]
if not state and ARGV[16] ~= "" then
  -- The record proves a charge for longer than a BIND may be sent, unless the clock has stepped. Decision 0014.
  local collected_until = redis.call("HGET", account, "collected_until")
  if collected_until and tonumber(ARGV[16]) <= tonumber(collected_until) then return { "forgotten", now } end
end
-- What was fixed at admission counts; ARGV only for a request that the store has forgotten.
local price = tonumber(record[3] or ARGV[5])
local is_unmetered = price == 0
if record[2] and record[2] ~= task_id then return { "conflict", now } end
-- The first write takes the task id in this partition, the second one over all. They fail if another request owns the id;
-- no later write can fail.
local bound_at = int(now)
local text = task_text(request_id, ARGV[4], account_id, bound_at)
local owner = redis.call("SET", task, text, "NX", "GET")
local noted = owner and read_noted(owner)
if noted then
  -- The claim has given this request the task id, so a mark for another one is out of date.
  local is_disputed = read_owner(owner) == request_id and noted ~= account_id
  redis.call("SET", task, (is_disputed and "!" or "") .. text)
elseif owner and read_owner(owner) ~= request_id then
  dispute(task, account_id)
  return { "conflict", now }
end
if state == "bound" or state == "finished" then return { record[6] and "uncollected" or "bound", now } end
local others = KEYS[10] ~= "" and taken_by_other(KEYS[10], request_id, task)
if others then
  redis.call("DEL", task)
  dispute(others, account_id)
  return { "conflict", now }
end

local first = KEYS[11] and redis.call("HMGET", KEYS[11], "request_id", "void_until", "first_void_id") or {}
local is_others = first[1] and first[1] ~= request_id
-- The entry that VOID left is gone, which only a step of the clock does while a BIND may come. Decision 0014.
local is_lost = record[7] and record[7] ~= first[3]
local outcome, spent, shared = "bound", nil, nil
if state ~= "held" and not is_unmetered then
  local money = redis.call("HMGET", account, "balance", "held", "limited")
  local covered = tonumber(money[1] or 0) - tonumber(money[2] or 0) >= price
  outcome = covered and not is_others and not is_lost and "late" or "uncollected"
  spent = read_spent(KEYS[9])
  shared = money[3] and read_shared(account, money[3], now)
  if shared then read_shared_use(shared) end
end

local admitted_at = tonumber(record[5] or ARGV[16])
local due_at = int(now + tonumber(ARGV[8]))
local max_age_ms, upstream = ARGV[13], ARGV[14]
if outcome ~= "uncollected" then
  local entry = { "request_id", request_id, "key_id", ARGV[4] }
  -- Once the record is gone, a refund takes the month of the charge, less an hour, for that of the admission (`admittedMs` in
  -- src/scripts/refund.ts). The few charges of which that is wrong say when it was. Most are of one day with it.
  local hour_ago = now - 3600000
  local is_other_day = admitted_at and math.floor(admitted_at / DAY_MS) ~= math.floor(hour_ago / DAY_MS)
  if is_other_day and month_of(admitted_at) ~= month_of(hour_ago) then
    entry[5], entry[6] = "admitted_at", int(admitted_at)
  end
  post(account, KEYS[5], bound_at, account_id, "consume", -price, state == "held" and -price or 0, price, ARGV[6],
    is_unmetered and "unmetered" or "", task_id, entry)
end
if state == "held" then
  if record[9] then remove_unknown(account, request_id) end
  redis.call("HSET", request, "state", "bound", "task_id", task_id, "bound_at", bound_at, "max_age_ms", max_age_ms,
    "upstream", upstream)
  redis.call("ZREM", KEYS[8], request_id)
else
  redis.call("HSET", request, "state", "bound", "account_id", account_id, "key_id", ARGV[4], "price", int(price),
    "endpoint", ARGV[6], "task_id", task_id, "bound_at", bound_at, "max_age_ms", max_age_ms, "upstream", upstream)
  if outcome == "uncollected" then
    redis.call("HSET", request, "uncollected", "1")
    note_ended(request, now, request_id, account_id, ARGV[4], ARGV[6], "uncollected", price)
  end
  if outcome == "late" then add_spent(spent, admitted_at, price) end
  if not record[4] then redis.call("HSET", request, "retention_ms", ARGV[15]) end
  -- A request that had no record has one from here on, and COLLECT needs to know when it was admitted.
  if ARGV[16] ~= "" then redis.call("HSETNX", request, "due_at", ARGV[16]) end
  redis.call("PERSIST", request)
  if is_unmetered then
    redis.call("HSET", request, "unmetered", "1")
  else
    redis.call("SADD", slots, request_id)
  end
  if shared then redis.call("SADD", shared.slots, request_id) end
  redis.call("ZREM", KEYS[7], request_id)
  -- VOID reduced the day's count only if the key was still on the day of admission. A key's day never goes back: if it is
  -- that day now, it was at the VOID, so the request is counted again.
  local day = record[5] and math.floor(tonumber(record[5]) / DAY_MS)
  local counted = day and redis.call("HMGET", KEYS[9], "day", "late_day", "late_count")
  if counted and tonumber(counted[1]) == day then
    local late_count = tonumber(counted[2]) == day and tonumber(counted[3]) or 0
    redis.call("HINCRBY", KEYS[9], "day_count", 1)
    redis.call("HSET", KEYS[9], "late_day", int(day), "late_count", int(late_count + 1))
  end
  local account_at = shared_stamp(shared, record[8])
  if account_at and math.floor(tonumber(account_at) / DAY_MS) == shared.stored_day then
    redis.call("HINCRBY", account, "day_count", 1)
  end
end
redis.call("ZADD", KEYS[4], due_at, request_id)
if KEYS[11] and not is_others then
  redis.call("HSET", KEYS[11], "request_id", request_id, "fingerprint", ARGV[10], "task_id", task_id,
    "response", ARGV[9], "due_at", due_at)
  -- The entry stays while an earlier request with this Idempotency-Key may still be bound. Without it, that request would
  -- be charged, too.
  redis.call("PEXPIRE", KEYS[11], int(math.max(tonumber(ARGV[11]), tonumber(first[2] or 0) - now)))
  redis.call("HSET", request, "idempotency", ARGV[12])
end
return { outcome, now }
