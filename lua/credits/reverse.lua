#!lua
-- REVERSE: takes back what is left of a grant, once per reference. What is held stays covered.
-- Decision 0077.
--
-- BOUND  100  one entry
-- `of` is the reference of the grant. `requested_text` (credits) may be empty: all of it. `granted_text`: its credits where
-- the caller has found it in the ledger or the archive, else empty. `forgotten_before`: how many references of the account were
-- forgotten when the archive was found not to have this one. `actor` is the request id, a space, and who. `reversed` also has the
-- sum, in the field without a name.
-- RETURNS outcome, balance (credits that can be spent)
--   reversed          taken now; then the credits
--   duplicate         this reference reversed the same before; nothing happens
--   mismatch          this reference stands for something else; nothing happens
--   no_grant          `of` stands for no grant; nothing happens
--   nothing_left      the grant was reversed before, or its credits are spent or held; nothing happens; then what was not
--                     reversed of it
--   forgotten         there is no such reference, but more of the account's have been forgotten, and this may be one of them;
--                     nothing happens; then also how many have been forgotten
--   unknown_account   nothing happens
--@keys account ledger references checkpoint reversed
--@args now account_id of requested_text granted_text reference reason forgotten_before actor
--@include audit ledger money numbers references
--@unless_frozen account
local money = read_money(account)
if not money then return { "unknown_account", "0" } end
local available = money.available
local stands_for = "reversal " .. (requested_text == "" and "all" or requested_text) .. " " .. of
local earlier = refuse_repeat(references, reference, stands_for, checkpoint, forgotten_before, available)
if earlier then return earlier end

local granted = call("HGET", references, of) or granted_text
granted = tonumber(string.match(granted, "^(%d+)$") or string.match(granted, "^trial (%d+)$")
  or string.match(granted, "^goodwill (%d+)$"))
if not granted then return { "no_grant", int(available) } end
local before = tonumber(call("HGET", reversed, of) or 0)
local requested = requested_text == "" and granted - before or tonumber(requested_text)
local amount = math.min(requested, granted - before, available)
if amount <= 0 then return { "nothing_left", int(available), int(granted - before) } end

call("HSET", references, reference, stands_for)
call("HSET", reversed, of, int(before + amount), "", int(tonumber(call("HGET", reversed, "") or 0) + amount))
local details = '{"of":' .. cjson.encode(of) .. ',"requested":' .. int(requested)
  .. (requested_text == "" and ',"all":true}' or "}")
local entry = post(account, ledger, int(now), account_id, "consume", -amount, 0, 0, "", "", "", "",
  { "reason", reason, "reference", reference, "by", by_of(actor), "kind", "reversal", "details", details })
index_reference(account, reference, account_id, entry)
write_audit(account, now, actor, "credits.reverse", account_id, account_id, { balance = int(available) },
  { balance = int(available - amount), amount = int(amount), requested = int(requested), of = of, reason = reason,
    reference = reference })
return { "reversed", int(available - amount), int(amount) }
