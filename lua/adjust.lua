#!lua
-- ADJUST: an operator corrects an account's balance by hand, up or down, once per reference. What is held stays covered.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  100  one entry
-- KEYS  1 account (hash)  2 ledger (stream)  3 references (hash: reference to what it stands for)  4 checkpoint (string)
-- ARGV  1 now (ms or empty)  2 account id  3 amount (credits, not 0; negative takes credits)  4 reference  5 reason
--       6 how many references of the account were forgotten when the archive was found not to have this one
--       7 who: request id, a space, who
-- RETURNS outcome, balance (credits that can be spent)
--   adjusted          changed now
--   duplicate         this reference adjusted by the same amount before; nothing happens
--   mismatch          this reference stands for something else; nothing happens
--   forgotten         there is no such reference, but more of the account's have been forgotten, and this may be one of them;
--                     nothing happens; then also how many have been forgotten
--   unknown_account   nothing happens
--   too_low           less is left than should be taken; nothing happens
--   too_large         the balance, with all that may yet be refunded, would leave the exact integers; nothing happens
--@include audit
--@include clock
--@include forgotten
--@include ledger
--@include numbers
--@include references
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local account, account_id, amount = KEYS[1], ARGV[2], tonumber(ARGV[3])
local money = redis.call("HMGET", account, "balance", "held", "total_used")
if not money[1] then return { "unknown_account", "0" } end
local available = tonumber(money[1]) - tonumber(money[2] or 0)
local stands_for = "adjustment " .. ARGV[3]
local earlier = redis.call("HGET", KEYS[3], ARGV[4])
if earlier then return { earlier == stands_for and "duplicate" or "mismatch", int(available) } end
local forgotten = count_forgotten(KEYS[4])
if forgotten > tonumber(ARGV[6]) then return { "forgotten", int(available), int(forgotten) } end
if available + amount < 0 then return { "too_low", int(available) } end
if tonumber(money[1]) + tonumber(money[3] or 0) + amount > 2 ^ 53 - 1 then return { "too_large", int(available) } end
redis.call("HSET", KEYS[3], ARGV[4], stands_for)
local entry = post(account, KEYS[2], int(now), account_id, amount < 0 and "consume" or "recharge", amount, 0, 0, "",
  ARGV[5], "", { "reference", ARGV[4], "by", by_of(ARGV[7]) })
index_reference(account, ARGV[4], account_id, entry)
write_audit(account, now, ARGV[7], "credits.adjust", account_id, account_id, { balance = int(available) },
  { balance = int(available + amount), amount = ARGV[3], reason = ARGV[5], reference = ARGV[4] })
return { "adjusted", int(available + amount) }
