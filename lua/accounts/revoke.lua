#!lua flags=allow-oom
-- REVOKE: an operator revokes a key for good.
--
-- BOUND  100  its record
-- `tiers` is a hash: tier to how many keys use it. `actor` is the request id, a space, and who.
-- RETURNS outcome, now
--   revoked           now
--   already_revoked   nothing happens
--   missing           there is no such key; nothing happens
--@keys key tiers
--@args now key_id actor
--@include audit changes keys numbers
--@unless_frozen key
local record = call("HMGET", key, "account_id", "revoked_at", "label")
if not record[1] then return { "missing", now } end
if record[2] then return { "already_revoked", now } end
tell_revoked(key, now, record[1], key_id, record[3])
note_changed(key, "key " .. key_id)
call("HSET", key, "revoked_at", int(now))
call("HDEL", key, "terms")
call("HINCRBY", key, "revision", 1)
count_tier(key, tiers)
write_audit(key, now, actor, "key.revoke", record[1], key_id, { revoked_at = cjson.null }, { revoked_at = int(now) })
return { "revoked", now }
