#!lua flags=allow-oom
-- REFUND: an operator refunds a finished task, once. Its charge is in the record of the request; after that was collected,
-- the caller has found it in the ledger or the archive.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  150  one request
-- KEYS  1 account (hash)  2 ledger (stream)  3 references (hash: reference to what it stands for)  4 checkpoint (string)
--       5 request (hash)
-- ARGV  1 now (ms or empty)  2 account id  3 request id  4 reference  5 the operator's reason
--       6 how many references of the account were forgotten when the archive was found not to have this one
--       7 who: request id, a space, who
--       and of a charge that has no refund, by the ledger and the archive (empty: not looked for):  8 price (credits)
--       9 endpoint  10 task id  11 key id  12 when it was admitted (ms; empty: not known for sure)
-- RETURNS outcome, balance (credits that can be spent)
--   refunded          refunded now; then the credits
--   duplicate         this reference refunded it before; nothing happens
--   mismatch          this reference stands for something else; nothing happens
--   refunded_before   it was refunded; nothing happens
--   unfinished        it is held or bound; nothing happens
--   uncharged         it is void or was bound without a charge, or at price 0; nothing happens
--   search            no record says whether it was charged and not refunded; nothing happens
--   forgotten         there is no such reference, but more of the account's have been forgotten, and this may be one of them;
--                     nothing happens; then also how many have been forgotten
--   unknown_account   nothing happens
--@include audit
--@include clock
--@include forgotten
--@include numbers
--@include references
--@include refund
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local account, account_id, request_id, reference = KEYS[1], ARGV[2], ARGV[3], ARGV[4]
local money = redis.call("HMGET", account, "balance", "held")
if not money[1] then return { "unknown_account", "0" } end
local available = tonumber(money[1]) - tonumber(money[2] or 0)
local stands_for = "refund " .. request_id
local earlier = redis.call("HGET", KEYS[3], reference)
if earlier then return { earlier == stands_for and "duplicate" or "mismatch", int(available) } end
local forgotten = count_forgotten(KEYS[4])
if forgotten > tonumber(ARGV[6]) then return { "forgotten", int(available), int(forgotten) } end

local record = redis.call("HMGET", KEYS[5], "state", "price", "endpoint", "task_id", "key_id", "status", "uncollected",
  "refunded", "admitted_at", "due_at")
local state = record[1]
if is_refunded(account, request_id, record[8]) then return { "refunded_before", int(available) } end
if state == "held" or state == "bound" then return { "unfinished", int(available) } end
if state == "void" or record[7] or tonumber(record[2] or ARGV[8]) == 0 then return { "uncharged", int(available) } end
local request = { name = state and KEYS[5], admitted_at = record[9] or record[10] or (ARGV[12] ~= "" and ARGV[12]) or nil }
if record[6] == "completed" then
  request.price, request.endpoint, request.task_id, request.key_id = record[2], record[3], record[4], record[5]
elseif ARGV[8] ~= "" then
  request.price, request.endpoint, request.task_id, request.key_id = ARGV[8], ARGV[9], ARGV[10], ARGV[11]
else
  return { "search", int(available) }
end

redis.call("HSET", KEYS[3], reference, stands_for)
local operator = { by = by_of(ARGV[7]), reference = reference, note = ARGV[5] }
local refunded, entry = post_refund(account, KEYS[2], now, account_id, request_id, request, operator)
index_reference(account, reference, account_id, entry)
write_audit(account, now, ARGV[7], "task.refund", account_id, request.task_id, { balance = int(available) },
  { balance = int(available + refunded), amount = int(refunded), reason = ARGV[5], reference = reference })
return { "refunded", int(available + refunded), int(refunded) }
