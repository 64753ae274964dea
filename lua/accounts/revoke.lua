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
--@include audit changes events keys numbers
--@unless_frozen key
local record = call("HMGET", key, "account_id", "revoked_at", "label")
if not record[1] then return { "missing", now } end
if record[2] then return { "already_revoked", now } end
local account = string.match(key, "^tg:{p%d+}") .. ":account:" .. record[1]
local data = cjson.encode({ key_id = key_id, label = record[3] or nil })
add_event(account, now, record[1], call("HGET", account, "webhooks"), "key.revoked", key_id, data, data)
note_changed(key, "key " .. key_id)
call("HSET", key, "revoked_at", int(now))
call("HDEL", key, "terms")
call("HINCRBY", key, "revision", 1)
count_tier(key, tiers)
write_audit(key, now, actor, "key.revoke", record[1], key_id, { revoked_at = cjson.null }, { revoked_at = int(now) })
return { "revoked", now }
