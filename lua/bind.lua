#!lua flags=allow-oom
-- BIND: the upstream gave a task id; the hold becomes a consume entry and the slot follows the task.
-- A hold that is void by now (a paused gateway) is bound all the same: charged if the balance allows, else
-- uncollected, its slot taken even above the limit. DESIGN section 3.
--
-- KEYS  1 request (hash)  2 account (hash)  3 slots (set)  4 polls (zset: request id by ms)  5 ledger (stream)
--       6 task (string: who owns the task id)  7 done (zset: request id by the ms when it may be forgotten)  8 holds (zset: request id by due ms)
--       9 idempotency (hash; only with an Idempotency-Key)
-- ARGV  1 now (ms or empty)  2 tiers (unused)  3 request id  4 account id  5 key id  6 price (credits)
--       7 endpoint (path)  8 task id  9 ms until the sweeper may ask
--       10 the answer's data (JSON; only with an Idempotency-Key)  11 fingerprint  12 idempotency lifetime (ms)
--       13 idempotency digest  14 maximum age of the task (ms)  15 which upstream made it (a text)  16 retention (ms)
--       journal lines of earlier releases lack the last three
-- RETURNS outcome, now; the numbers of the headers are those of the admission
--   bound        charged (also when it was bound to this task id before)
--   late         the hold was void; charged now
--   uncollected  the hold was void and the balance does not allow the price; nothing charged
--   conflict     the task id belongs to another request, or this request to another task; nothing happens
local now = store_now()
local request, account, slots, task = KEYS[1], KEYS[2], KEYS[3], KEYS[6]
local request_id, account_id, task_id = ARGV[3], ARGV[4], ARGV[8]

local record = redis.call("HMGET", request, "state", "task_id", "price", "retention_ms")
local state = record[1]
-- What was fixed at admission counts; ARGV only for a request that the store has forgotten.
local price = tonumber(record[3] or ARGV[6])
if record[2] and record[2] ~= task_id then return { "conflict", now } end
-- The first write takes the task id: it fails where another has it, and nothing after it can.
local bound_at = int(now)
local owner = redis.call("SET", task, task_text(request_id, ARGV[5], account_id, bound_at), "NX", "GET")
if owner and string.match(owner, "^%S+") ~= request_id then return { "conflict", now } end
if state == "bound" or state == "finished" then return { "bound", now } end

local outcome = "bound"
if state ~= "held" then
  local money = redis.call("HMGET", account, "balance", "held")
  local covered = tonumber(money[1] or 0) - tonumber(money[2] or 0) >= price
  outcome = covered and "late" or "uncollected"
end

local due_at = int(now + tonumber(ARGV[9]))
local max_age_ms, upstream = ARGV[14] or "", ARGV[15] or ""
if outcome ~= "uncollected" then
  post(account, KEYS[5], bound_at, account_id, "consume", -price, state == "held" and -price or 0, price, ARGV[7], "",
    task_id, { "request_id", request_id, "key_id", ARGV[5] })
end
if state == "held" then
  redis.call("HSET", request, "state", "bound", "task_id", task_id, "bound_at", bound_at, "max_age_ms", max_age_ms,
    "upstream", upstream)
  redis.call("ZREM", KEYS[8], request_id)
else
  redis.call("HSET", request, "state", "bound", "account_id", account_id, "key_id", ARGV[5], "price", int(price),
    "endpoint", ARGV[7], "task_id", task_id, "bound_at", bound_at, "max_age_ms", max_age_ms, "upstream", upstream)
  if outcome == "uncollected" then redis.call("HSET", request, "uncollected", "1") end
  if ARGV[16] and not record[4] then redis.call("HSET", request, "retention_ms", ARGV[16]) end
  redis.call("PERSIST", request)
  redis.call("SADD", slots, request_id)
  redis.call("ZREM", KEYS[7], request_id)
end
redis.call("ZADD", KEYS[4], due_at, request_id)
if KEYS[9] then
  local first = redis.call("HGET", KEYS[9], "request_id")
  if not first or first == request_id then
    redis.call("HSET", KEYS[9], "request_id", request_id, "fingerprint", ARGV[11], "task_id", task_id,
      "response", ARGV[10], "due_at", due_at)
    redis.call("PEXPIRE", KEYS[9], ARGV[12])
    redis.call("HSET", request, "idempotency", ARGV[13])
  end
end
return { outcome, now }
