#!lua
-- CHANGE: an operator changes a key's record.
--
-- BOUND  200  its record
-- `absent_field` must not be there yet (empty: none). `revisions` are those of the record that the caller has seen, with
-- commas (empty: any). `actor` is the request id, a space, and who; `action` is as the audit has it. `fields` are field,
-- value pairs; an empty value removes the field.
-- RETURNS outcome, now
--   changed     then the record's new revision
--   unchanged   the record has these values; nothing happens
--   kept        the field is there; nothing happens
--   stale       the record has another revision; nothing happens
--   missing     there is no such key; nothing happens
--@keys key tiers
--@args now absent_field revisions actor action fields...
--@include audit changes keys words
--@unless_frozen key
local record = call("HMGET", key, "account_id", "revision", "label")
if not record[1] then return { "missing", now } end
if absent_field ~= "" and call("HEXISTS", key, absent_field) == 1 then return { "kept", now } end
if not is_seen(revisions, record[2]) then return { "stale", now } end
local before, after = differing_fields(key, fields)
if not before then return { "unchanged", now } end
local key_id = string.match(key, ":key:(.*)$")
-- A rotation without overlap revokes the old key.
if after.revoked_at and after.revoked_at ~= cjson.null then tell_revoked(key, now, record[1], key_id, record[3]) end
note_changed(key, "key " .. key_id)
change_words_of_text("ZREM", key, before.label, record[1] .. "@" .. key_id)
set_fields(key, after)
change_words_of_text("ZADD", key, after.label, record[1] .. "@" .. key_id)
call("HDEL", key, "terms")
if after.expires_at then list_expiry(key, key_id, after.expires_at ~= cjson.null and after.expires_at) end
local revision = call("HINCRBY", key, "revision", 1)
count_tier(key, tiers)
write_audit(key, now, actor, action, record[1], key_id, before, after)
return { "changed", now, revision }
