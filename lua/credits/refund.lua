#!lua flags=allow-oom
-- REFUND: an operator refunds a finished task, once. Its charge is in the record of the request; after that was collected,
-- the caller has found it in the ledger or the archive.
--
-- BOUND  150  one request
-- `reason` is the operator's. `forgotten_before`: how many references of the account were forgotten when the archive was
-- found not to have this one. `actor` is the request id, a space, and who. `price` and what follows it are of a charge that
-- has no refund, by the ledger and the archive (empty: not looked for); `admitted_at` (ms) is empty if it is not known for
-- sure.
-- RETURNS outcome, balance (credits that can be spent)
--   refunded          refunded now; then the credits
--   duplicate         this reference refunded it before; nothing happens
--   mismatch          this reference stands for something else; nothing happens
--   refunded_before   it was refunded; nothing happens
--   charged_again     it was refunded, and charged again since it completed late; nothing happens
--   unfinished        it is held or bound; nothing happens
--   uncharged         it is void or was bound without a charge, or at price 0; nothing happens
--   search            no record says whether it was charged and not refunded; nothing happens
--   forgotten         there is no such reference, but more of the account's have been forgotten, and this may be one of them;
--                     nothing happens; then also how many have been forgotten
--   unknown_account   nothing happens
--@keys account ledger references checkpoint request_name
--@args now account_id request_id reference reason forgotten_before actor price endpoint task_id key_id admitted_at
--@include audit money numbers references refund request
--@unless_frozen account
local money = read_money(account)
if not money then return { "unknown_account", "0" } end
local available = money.available
local stands_for = "refund " .. request_id
local earlier = refuse_repeat(references, reference, stands_for, checkpoint, forgotten_before, available)
if earlier then return earlier end

local record = read_request(request_name)
local state = record.state
if is_refunded(account, request_id, record.refunded) then
  return { record.charged_again and "charged_again" or "refunded_before", int(available) }
end
if state == "held" or state == "bound" then return { "unfinished", int(available) } end
if state == "void" or record.uncollected or tonumber(record.price or price) == 0 then
  return { "uncharged", int(available) }
end
if record.status ~= "completed" and price ~= "" then
  record.price, record.endpoint, record.task_id, record.key_id = price, endpoint, task_id, key_id
  record.admitted_at = record.admitted_at or record.due_at or (admitted_at ~= "" and admitted_at) or nil
elseif record.status ~= "completed" then
  return { "search", int(available) }
end

call("HSET", references, reference, stands_for)
local operator = { by = by_of(actor), reference = reference, note = reason }
local refunded, entry = post_refund(account, ledger, now, account_id, request_id, record, operator)
if state then call("SET", request_name, changed_request(record.text, state, "refunded", "1")) end
index_reference(account, reference, account_id, entry)
write_audit(account, now, actor, "task.refund", account_id, record.task_id, { balance = int(available) },
  { balance = int(available + refunded), amount = int(refunded), reason = reason, reference = reference })
return { "refunded", int(available + refunded), int(refunded) }
