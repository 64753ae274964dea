#!lua
-- ADJUST: an operator corrects an account's balance by hand, up or down, once per reference. What is held stays covered.
--
-- BOUND  100  one entry
-- `credits` is not 0; less than 0 takes credits. `forgotten_before`: how many references of the account were forgotten when
-- the archive was found not to have this one. `actor` is the request id, a space, and who.
-- RETURNS outcome, balance (credits that can be spent)
--   adjusted          changed now
--   duplicate         this reference adjusted by the same amount before; nothing happens
--   mismatch          this reference stands for something else; nothing happens
--   forgotten         there is no such reference, but more of the account's have been forgotten, and this may be one of them;
--                     nothing happens; then also how many have been forgotten
--   unknown_account   nothing happens
--   too_low           less is left than should be taken; nothing happens
--   too_large         the balance, with all that may yet be refunded, would leave the exact integers; nothing happens
--@keys account ledger references checkpoint
--@args now account_id credits reference reason forgotten_before actor
--@include audit ledger money numbers references
--@unless_frozen account
local amount = tonumber(credits)
local money = read_money(account)
if not money then return { "unknown_account", "0" } end
local available = money.available
local stands_for = "adjustment " .. credits
local earlier = refuse_repeat(references, reference, stands_for, checkpoint, forgotten_before, available)
if earlier then return earlier end
if available + amount < 0 then return { "too_low", int(available) } end
if money.balance + money.used + amount > 2 ^ 53 - 1 then return { "too_large", int(available) } end
call("HSET", references, reference, stands_for)
local entry = post(account, ledger, int(now), account_id, amount < 0 and "consume" or "recharge", amount, 0, 0, "",
  "", "", "", { "reason", reason, "reference", reference, "by", by_of(actor) })
index_reference(account, reference, account_id, entry)
write_audit(account, now, actor, "credits.adjust", account_id, account_id, { balance = int(available) },
  { balance = int(available + amount), amount = credits, reason = reason, reference = reference })
return { "adjusted", int(available + amount) }
