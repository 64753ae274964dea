#!lua flags=allow-oom
-- SUSPEND: an operator suspends or closes an account.
--
-- BOUND  200  its record
-- `status` is suspended or closed; `revisions` are those of the record that the caller has seen, with commas (empty: any).
-- `may_lift` (1 or 0): it may do more than before, suspended if it is closed. `actor` is the request id, a space, and who.
-- RETURNS outcome, now
--   changed      then the account as HGETALL returns it
--   unchanged    the record has this status; nothing happens; then the account
--   restricted   it is closed, and stays so; nothing happens
--   stale        the record has another revision; nothing happens
--   missing      there is no such account; nothing happens
--@keys account
--@args now account_id status revisions may_lift actor
--@include accounts audit changes money
--@unless_frozen account
local record = call("HMGET", account, "money", "revision", "status")
if not record[1] then return { "missing", now } end
if not is_seen(revisions, record[2]) then return { "stale", now } end
if record[3] == status then return { "unchanged", now, call("HGETALL", account) } end
if may_lift ~= "1" and lifts(record[3], status) then return { "restricted", now } end
tell_restricted(account, now, account_id, status, record[2])
note_changed(account, "account " .. account_id)
unlist_account(account, account_id)
call("HSET", account, "status", status)
mark_extras(account)
list_account(account, account_id)
call("HINCRBY", account, "revision", 1)
write_audit(account, now, actor, "account.patch", account_id, account_id, { status = record[3] or cjson.null },
  { status = status })
return { "changed", now, call("HGETALL", account) }
