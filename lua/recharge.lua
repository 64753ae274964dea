#!lua
-- RECHARGE: credits an account, once per reference.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  100  one entry
-- KEYS  1 account (hash)  2 ledger (stream)  3 references (hash: reference to what it stands for)  4 checkpoint (string)
-- ARGV  1 now (ms or empty)  2 account id  3 amount (credits, positive)  4 reference
--       5 how many references of the account were forgotten when the archive was found not to have this one
--       6 who: request id, a space, who
-- RETURNS outcome, balance (credits that can be spent)
--   recharged         credited now
--   duplicate         this reference credited the same amount before; nothing happens
--   mismatch          this reference stands for another amount, an adjustment or a refund; nothing happens
--   forgotten         there is no such reference, but more of the account's have been forgotten, and this may be one of them;
--                     nothing happens; then also how many have been forgotten
--   unknown_account   nothing happens
--   too_large         the balance, with all that may yet be refunded, would leave the exact integers; nothing happens
--@include audit
--@include clock
--@include forgotten
--@include ledger
--@include numbers
--@include references
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local money = redis.call("HMGET", KEYS[1], "balance", "held", "total_used")
if not money[1] then return { "unknown_account", "0" } end
local available = tonumber(money[1]) - tonumber(money[2] or 0)
local earlier = redis.call("HGET", KEYS[3], ARGV[4])
if earlier then return { earlier == ARGV[3] and "duplicate" or "mismatch", int(available) } end
local forgotten = count_forgotten(KEYS[4])
if forgotten > tonumber(ARGV[5]) then return { "forgotten", int(available), int(forgotten) } end
local amount = tonumber(ARGV[3])
if tonumber(money[1]) + tonumber(money[3] or 0) + amount > 2 ^ 53 - 1 then return { "too_large", int(available) } end
redis.call("HSET", KEYS[3], ARGV[4], ARGV[3])
local entry = post(KEYS[1], KEYS[2], int(now), ARGV[2], "recharge", amount, 0, 0, "", "", "",
  { "reference", ARGV[4], "by", by_of(ARGV[6]) })
index_reference(KEYS[1], ARGV[4], ARGV[2], entry)
write_audit(KEYS[1], now, ARGV[6], "credits.grant", ARGV[2], ARGV[2], { balance = int(available) },
  { balance = int(available + amount), amount = ARGV[3], reference = ARGV[4] })
return { "recharged", int(available + amount) }
