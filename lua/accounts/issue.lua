#!lua
-- ISSUE: creates a key, its account if there is none, and grants the credits that come with it, in one step. A key that it replaces
-- ends in the same step.
--
-- BOUND  100  one key
-- `credits_text` may be 0 (none); `reference` is theirs, `kind` (trial or goodwill; empty: purchase) that of their grant. `actor` is the request id, a space, and who. `must_exist` (1 or 0):
-- the account. `old_key` is the record of a key that is replaced, `old_revision` as the caller has seen it (empty: none is), and
-- `end_field` (revoked_at or expires_at) gets the time `end_at` (ms). `fields` are field, value pairs of the new key's record.
-- RETURNS outcome, balance (credits that can be spent)
--   issued
--   known             a key of this id exists; nothing happens
--   unknown_account   the account must exist, and does not; nothing happens
--   closed            the account is; nothing happens
--   too_many_keys     the account has as many as it may have, also revoked ones; nothing happens
--   stale             the replaced key has another revision, or is gone; nothing happens
--   too_large         the balance, with all that may yet be refunded, would leave the exact integers; nothing happens
--@keys key account account_keys accounts ledger references tiers old_key
--@args now key_id account_id credits_text reference kind actor must_exist keys_max old_revision end_field end_at fields...
--@include audit changes grant key_change keys ledger money numbers ranks references words
--@unless_frozen key
local credits = tonumber(credits_text)

local money = read_money(account)
local available = money and money.available or 0
if call("EXISTS", key) == 1 then return { "known", int(available) } end
if must_exist == "1" and not money then return { "unknown_account", "0" } end
if call("HGET", account, "status") == "closed" then return { "closed", int(available) } end
if call("ZCARD", account_keys) >= tonumber(keys_max) then return { "too_many_keys", int(available) } end
if old_revision ~= "" then
  local old = call("HMGET", old_key, "account_id", "revision")
  if not old[1] or not is_seen(old_revision, old[2]) then return { "stale", int(available) } end
end
if money and money.balance + money.used + credits > 2 ^ 53 - 1 then return { "too_large", int(available) } end

note_changed(key, "account " .. account_id)
note_changed(key, "key " .. key_id)
if not money then
  call("HSET", account, "money", NO_MONEY, "created_at", int(now))
  rank_new_account(account, account_id)
end
call("ZADD", accounts, 0, account_id)
call("ZADD", account_keys, int(now), key_id)
call("HSET", key, "account_id", account_id, "created_at", int(now), unpack(fields))
count_tier(key, tiers)
if credits > 0 then
  call("HSET", references, reference, grant_text(kind, credits_text))
  local entry = post(account, ledger, int(now), account_id, "recharge", credits, 0, 0, "", "", "", "",
    grant_fields(kind, "", reference, actor))
  index_reference(key, reference, account_id, entry)
end
local after = { credits = credits > 0 and credits_text or nil }
for at = 1, #fields, 2 do
  if not string.find(" sha256 fingerprint spends_in ", " " .. fields[at] .. " ", 1, true) then
    after[fields[at]] = fields[at + 1]
  end
end
change_words_of_text("ZADD", key, after.label, account_id .. "@" .. key_id)
if after.expires_at then list_expiry(key, key_id, after.expires_at) end
write_audit(key, now, actor, "key.create", account_id, key_id, {}, after)
if old_revision ~= "" then
  local before, ended = differing_fields(old_key, { "rotated_to", key_id, end_field, end_at })
  change_key(old_key, tiers, now, actor, "key.rotate", before, ended)
end
return { "issued", int(available + credits) }
