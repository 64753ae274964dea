#!lua
-- CORRECT: gives back a part of what a request was charged, since its price was wrong; once per request.
-- Decision 0077.
--
-- BOUND  100  one entry
-- The caller has found the charge in the ledger, and no refund of it that stands. `credits_text` is what goes back. `forgotten_before`: how
-- many references of the account were forgotten when the archive was found not to have this one. `actor` is the request id, a
-- space, and who.
-- RETURNS outcome, balance (credits that can be spent)
--   corrected         credited now
--   duplicate         this reference corrected it before; nothing happens
--   mismatch          this reference stands for something else; nothing happens
--   refunded_before   it was refunded, and not charged again since it completed late, or corrected; nothing happens
--   unfinished        its task has not ended; nothing happens
--   forgotten         there is no such reference, but more of the account's have been forgotten, and this may be one of them;
--                     nothing happens; then also how many have been forgotten
--   unknown_account   nothing happens
--@keys account ledger references checkpoint request_name
--@args now account_id request_id credits_text reference reason forgotten_before actor
--@include audit ledger money numbers references refund request
--@unless_frozen account
local money = read_money(account)
if not money then return { "unknown_account", "0" } end
local available = money.available
local stands_for = "adjustment " .. credits_text
local earlier = refuse_repeat(references, reference, stands_for, checkpoint, forgotten_before, available)
if earlier then return earlier end
local record = read_request(request_name)
local is_before, refunds = is_refunded(account, request_id, not record.charged_again and record.refunded)
if is_before then return { "refunded_before", int(available) } end
if record.state == "bound" then return { "unfinished", int(available) } end

local credits = tonumber(credits_text)
call("HSET", references, reference, stands_for)
-- From here on nobody refunds the request: a refund gives back all of its charge.
call("HSET", refunds, request_id, reference)
local entry = post(account, ledger, int(now), account_id, "recharge", credits, 0, 0, "", "", "", "",
  { "reason", reason, "reference", reference, "by", by_of(actor), "details", '{"corrects":' .. cjson.encode(request_id) .. "}" })
index_reference(account, reference, account_id, entry)
write_audit(account, now, actor, "credits.correct", account_id, request_id, { balance = int(available) },
  { balance = int(available + credits), amount = credits_text, reason = reason, reference = reference })
return { "corrected", int(available + credits) }
