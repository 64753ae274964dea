#!lua
-- ACCOUNT: an operator creates an account, or changes its record.
--
-- BOUND  200  its record
-- `action` is account.create or account.patch, as the audit has it; `revisions` those of the record that the caller has
-- seen, with commas (empty: any). `actor` is the request id, a space, and who. `may_lift` (1 or 0): the account may do more
-- than with its earlier status. `fields` are field, value pairs; an empty value removes the field.
-- RETURNS outcome, now
--   created     then the account as HGETALL returns it
--   exists      it is there and should be created; nothing happens
--   changed     then the account
--   unchanged   the record has these values; nothing happens; then the account
--   restricted  it is suspended or closed, and stays so; nothing happens
--   stale       the record has another revision; nothing happens
--   missing     there is no such account; nothing happens
--@keys account accounts
--@args now account_id action revisions actor may_lift fields...
--@include accounts audit changes limits members metadata money numbers ranks
--@unless_frozen account
local creates = action == "account.create"
local record = call("HMGET", account, "money", "revision")
if creates and record[1] then return { "exists", now } end
if not creates and not record[1] then return { "missing", now } end
if not is_seen(revisions, record[2]) then return { "stale", now } end
local before, after = differing_fields(account, fields)
if not creates and not before then return { "unchanged", now, call("HGETALL", account) } end
if before and after.status and may_lift ~= "1" and lifts(before.status, after.status) then return { "restricted", now } end
if after and RESTRICTION[after.status] then tell_restricted(account, now, account_id, after.status, record[2]) end
note_changed(account, "account " .. account_id)
unlist_account(account, account_id)
local has_other_words = after and (after.label or after.metadata)
if has_other_words then change_words_of_account("ZREM", account, account_id) end
if creates then
  call("HSET", account, "money", NO_MONEY, "created_at", int(now))
  call("ZADD", accounts, 0, account_id)
  rank_new_account(account, account_id)
end
set_fields(account, after or {})
-- Changed thresholds are all armed, also those that the account had before.
if after and after.alerts then call("HDEL", account, "alerted") end
list_account(account, account_id)
if has_other_words then change_words_of_account("ZADD", account, account_id) end
if after and after.metadata then index_metadata(account, account_id, before.metadata, after.metadata) end
call("HINCRBY", account, "revision", creates and 0 or 1)
mark_limited(account)
mark_extras(account)
before, after = before or {}, after or {}
write_audit(account, now, actor, action, account_id, account_id, creates and {} or audited(before, after),
  audited(after, before))
return { creates and "created" or "changed", now, call("HGETALL", account) }
