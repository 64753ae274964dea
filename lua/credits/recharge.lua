#!lua
-- RECHARGE: credits an account, once per reference.
--
-- BOUND  100  one entry
-- `amount_text` is in credits, positive. `forgotten_before`: how many references of the account were forgotten when the
-- archive was found not to have this one. `actor` is the request id, a space, and who. `kind` is trial or goodwill, or empty for
-- a purchase; `details` is what else the entry says, JSON, or empty.
-- RETURNS outcome, balance (credits that can be spent)
--   recharged         credited now
--   duplicate         this reference credited the same amount by a grant of the same kind before; nothing happens
--   mismatch          this reference stands for something else; nothing happens
--   forgotten         there is no such reference, but more of the account's have been forgotten, and this may be one of them;
--                     nothing happens; then also how many have been forgotten
--   unknown_account   nothing happens
--   closed            the account is; nothing happens
--   too_large         the balance, with all that may yet be refunded, would leave the exact integers; nothing happens
--@keys account ledger references checkpoint
--@args now account_id amount_text reference forgotten_before actor kind details
--@include audit grant ledger money numbers references
--@unless_frozen account
local money = read_money(account)
if not money then return { "unknown_account", "0" } end
local available = money.available
local stands_for = grant_text(kind, amount_text)
local earlier = refuse_repeat(references, reference, stands_for, checkpoint, forgotten_before, available)
if earlier then return earlier end
if call("HGET", account, "status") == "closed" then return { "closed", int(available) } end
local amount = tonumber(amount_text)
if money.balance + money.used + amount > 2 ^ 53 - 1 then return { "too_large", int(available) } end
call("HSET", references, reference, stands_for)
local entry = post(account, ledger, int(now), account_id, "recharge", amount, 0, 0, "", "", "", "",
  grant_fields(kind, details, reference, actor))
index_reference(account, reference, account_id, entry)
write_audit(account, now, actor, "credits.grant", account_id, account_id, { balance = int(available) },
  { balance = int(available + amount), amount = amount_text, reference = reference,
    kind = kind ~= "" and kind or nil, details = details ~= "" and details or nil })
return { "recharged", int(available + amount) }
