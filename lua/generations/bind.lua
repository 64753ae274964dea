#!lua flags=allow-oom
-- BIND: the upstream gave a task id; the hold becomes a consume entry and the slot follows the task.
-- A hold that is void by now (the gateway was paused) is bound all the same: charged if the balance allows and no other
-- request can have been charged for its Idempotency-Key, else uncollected, its slot taken even above the limit.
-- A request of price 0 passed unmetered while the store was away, and was never admitted: it takes no slot and no credits.
--
-- BOUND  150  one request
-- The other names are made here, as in ADMIT; the claim of the task id is the only one outside of the partition.
-- `price_text` is in credits (0: unmetered), `endpoint` a path, `fixed` are fields of the record. `claimed` is 1 where the gateway has
-- claimed the task id before, else empty. `poll_ms`: until the sweeper may poll.
-- Without an Idempotency-Key, `response` (the answer's data, JSON), `fingerprint` and `digest` are empty.
-- `admission`: when the request was admitted (ms; empty if it is not known).
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
--@keys key_name
--@args now request_id account_id key_id endpoint price_text retention_ms task_id claimed fixed poll_ms response fingerprint idempotency_ms digest admission
--@include clock due ledger limits money numbers request rollup_note spent task unknown
--@unless_frozen key_name

local prefix = prefix_of(key_name, key_id)
local request, account, task = prefix .. "request:" .. request_id, prefix .. "account:" .. account_id, prefix .. "task:" .. task_id
local claim = claimed == "" and "tg:claim:" .. task_id
local idempotency = digest ~= "" and prefix .. "idempotency:" .. digest

-- The record is `subject` and `rest` behind its state.
local subject = request_text("", account_id, key_id, endpoint, price_text, retention_ms, "")
local rest, earlier = read_held(call("GET", request), subject), nil
if not rest then earlier = read_request(request) end
local state = earlier and earlier.state or not earlier and "held"
if not state and admission ~= "" then
  -- The record proves a charge for longer than a BIND may be sent, unless the clock has stepped. Decision 0008.
  local collected_until = call("HGET", account, "collected_until")
  if collected_until and tonumber(admission) <= tonumber(collected_until) then return { "forgotten", now } end
end
-- Values fixed at admission count; the arguments only for a request that the store has forgotten.
local recorded_at = earlier and earlier.admitted_at
if not earlier then
  recorded_at = string.sub(rest, 1, string.find(rest, " ", 1, true) - 1)
elseif earlier.price then
  account_id, key_id, endpoint, price_text = earlier.account_id, earlier.key_id or "", earlier.endpoint or "", earlier.price
  subject, rest = "", string.sub(earlier.text, string.find(earlier.text, " ", 1, true), -1)
else
  rest = " " .. admission .. (earlier.reason and " reason=" .. earlier.reason or "")
end
local price = price_text + 0
local is_unmetered = price == 0
if earlier and earlier.task_id and earlier.task_id ~= task_id then return { "conflict", now } end
-- The first write takes the task id in this partition and over all; where one of the two is taken, two writes find out whose it
-- is. They fail if another request owns the id; no later write can fail.
local bound_at = int(now)
local owned = task_text(request_id, key_id, account_id, bound_at)
local is_free = claim and call("MSETNX", task, owned, claim, claim_text(request_id, prefix)) == 1
local owner = not is_free and call("SET", task, owned, "NX", "GET")
local noted = owner and read_noted(owner)
if noted then
  -- The claim has given this request the task id, so a mark for another one is out of date.
  local is_disputed = read_owner(owner) == request_id and noted ~= account_id
  call("SET", task, (is_disputed and "!" or "") .. owned)
elseif owner and read_owner(owner) ~= request_id then
  dispute(task, account_id)
  return { "conflict", now }
end
if state == "bound" or state == "finished" then return { earlier.uncollected and "uncollected" or "bound", now } end
local others = not is_free and claim and taken_by_other(claim, request_id, prefix, task_id)
if others then
  call("DEL", task)
  dispute(others, account_id)
  return { "conflict", now }
end

local admitted_key = state ~= "held" and prefix .. "key:" .. key_id
local first = idempotency and call("HMGET", idempotency, "request_id", "void_until", "first_void_id")
local is_others = first and first[1] and first[1] ~= request_id
-- The entry that VOID left is gone, which only a step of the clock does while a BIND may come. Decision 0008.
local is_lost = state ~= "held" and earlier.first_void_id and earlier.first_void_id ~= (first and first[3])
local outcome, spent, shared = "bound", nil, nil
if state ~= "held" and not is_unmetered then
  local money, limited = read_money(account), call("HGET", account, "limited")
  local covered = money and money.available >= price
  outcome = covered and not is_others and not is_lost and "late" or "uncollected"
  spent = read_spent(admitted_key)
  shared = limited and read_shared(account, limited, now)
  if shared then read_shared_use(shared) end
end

local admitted_at = tonumber(recorded_at or admission)
if outcome ~= "uncollected" then
  local more = is_unmetered and { "reason", "unmetered" } or nil
  -- Once the record is gone, a refund takes the month of the charge, less an hour, for that of the admission (`admittedMs` in
  -- src/scripts/credit-changes.ts). The few charges of which that is wrong say when it was. Most are of one day with it.
  local hour_ago = now - 3600000
  local is_other_day = admitted_at and math.floor(admitted_at / DAY_MS) ~= math.floor(hour_ago / DAY_MS)
  if is_other_day and month_of(admitted_at) ~= month_of(hour_ago) then
    more = { "admitted_at", int(admitted_at), unpack(more or {}) }
  end
  local details = read_details(rest)
  if details then more = { "details", details, unpack(more or {}) } end
  post(account, prefix .. "ledger", bound_at, account_id, "consume", -price, state == "held" and -price or 0, price, endpoint,
    task_id, request_id, key_id, more)
end
-- An uncovered charge takes no Idempotency-Key: a repeat would be answered with a video for nothing. An unmetered task takes none that
-- another request has: repeats go on being answered with the task that was or will be charged.
local takes_key = idempotency and not is_others and (outcome ~= "uncollected" or is_lost)
-- Without an earlier TTL, which a tombstone has.
call("SET", request, "bound" .. subject .. rest .. " task_id=" .. task_id .. " bound_at=" .. bound_at .. " " .. fixed
  .. (outcome == "uncollected" and " uncollected=1" or "") .. (state ~= "held" and is_unmetered and " unmetered=1" or "")
  .. (takes_key and state ~= "held" and not earlier.idempotency and " idempotency=" .. digest or ""))
if state == "held" then
  if string.find(rest, " unknown=", 1, true) then remove_unknown(account, request_id) end
else
  if outcome == "uncollected" then
    note_ended(request, now, request_id, account_id, key_id, endpoint, "uncollected", price)
  end
  if outcome == "late" then add_spent(spent, admitted_at, price) end
  if not is_unmetered then call("SADD", (string.gsub(key_name, ":key:", ":slots:", 1)), request_id) end
  if shared then call("SADD", shared.slots, request_id) end
  call("ZREM", prefix .. "done", request_id)
  -- VOID reduced the day's count only if the key was still on the day of admission. A key's day never goes back: if it is
  -- that day now, it was at the VOID, so the request is counted again.
  if recorded_at and change_counts(admitted_key, recorded_at, 1) then
    local late, day = call("HMGET", admitted_key, "late_day", "late_count"), math.floor(recorded_at / DAY_MS)
    local late_count = tonumber(late[1]) == day and tonumber(late[2]) or 0
    call("HSET", admitted_key, "late_day", int(day), "late_count", int(late_count + 1))
  end
  local account_at = shared_stamp(shared, earlier.account_at)
  if account_at then change_counts(account, account_at, 1) end
end
call("ZADD", prefix .. "due", task_score(now + poll_ms), request_id)
if takes_key then
  call("HSET", idempotency, "request_id", request_id, "fingerprint", fingerprint, "task_id", task_id,
    "response", response, "due_at", int(now + poll_ms))
  -- The entry stays while an earlier request with this Idempotency-Key may still be bound. Without it, that request would
  -- be charged, too.
  call("PEXPIRE", idempotency, int(math.max(tonumber(idempotency_ms), tonumber(first[2] or 0) - now)))
end
return '["' .. outcome .. '",' .. bound_at .. "]"
