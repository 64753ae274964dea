#!lua
-- ISSUE: creates a key, its account if there is none, and grants the credits that come with it, in one step.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  100  one key
-- KEYS  1 key (hash)  2 account (hash)  3 keys of the account (zset: key id by created_at)  4 accounts of the partition (zset, all scores 0)
--       5 ledger (stream)  6 references (hash: reference to what it stands for)
--       7 tiers (hash: tier to how many keys use it)
-- ARGV  1 now (ms or empty)  2 key id  3 account id  4 credits (0: none)  5 their reference
--       6 who: request id, a space, who  7 whether the account must exist (1 or 0)
--       8 how many keys an account may have  9.. field, value pairs of the key's record
-- RETURNS outcome, balance (credits that can be spent)
--   issued
--   known             a key of this id exists; nothing happens
--   unknown_account   the account must exist, and does not; nothing happens
--   too_many_keys     the account has as many as it may have, also revoked ones; nothing happens
--   too_large         the balance, with all that may yet be refunded, would leave the exact integers; nothing happens
--@include audit
--@include changed
--@include clock
--@include ledger
--@include numbers
--@include references
--@include tiers
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local key, account, account_id, credits = KEYS[1], KEYS[2], ARGV[3], tonumber(ARGV[4])

local money = redis.call("HMGET", account, "balance", "held", "total_used")
local balance = tonumber(money[1] or 0)
local available = balance - tonumber(money[2] or 0)
if redis.call("EXISTS", key) == 1 then return { "known", int(available) } end
if ARGV[7] == "1" and not money[1] then return { "unknown_account", "0" } end
if redis.call("ZCARD", KEYS[3]) >= tonumber(ARGV[8]) then return { "too_many_keys", int(available) } end
if balance + tonumber(money[3] or 0) + credits > 2 ^ 53 - 1 then return { "too_large", int(available) } end

note_changed(key, "account " .. account_id)
note_changed(key, "key " .. ARGV[2])
if not money[1] then
  redis.call("HSET", account, "balance", "0", "held", "0", "total_used", "0", "total_requests", "0",
    "created_at", int(now))
end
redis.call("ZADD", KEYS[4], 0, account_id)
redis.call("ZADD", KEYS[3], int(now), ARGV[2])
redis.call("HSET", key, "account_id", account_id, "created_at", int(now), unpack(ARGV, 9))
count_tier(key, KEYS[7])
if credits > 0 then
  redis.call("HSET", KEYS[6], ARGV[5], ARGV[4])
  local entry = post(account, KEYS[5], int(now), account_id, "recharge", credits, 0, 0, "", "", "",
    { "reference", ARGV[5], "by", by_of(ARGV[6]) })
  index_reference(key, ARGV[5], account_id, entry)
end
local after = { credits = credits > 0 and ARGV[4] or nil }
for at = 9, #ARGV, 2 do
  if not string.find(" sha256 fingerprint spends_in ", " " .. ARGV[at] .. " ", 1, true) then
    after[ARGV[at]] = ARGV[at + 1]
  end
end
write_audit(key, now, ARGV[6], "key.create", account_id, ARGV[2], {}, after)
return { "issued", int(available + credits) }
