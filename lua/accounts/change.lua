#!lua
-- CHANGE: an operator changes a key's record.
--
-- BOUND  200  its record
-- `revisions` are those of the record that the caller has seen, with commas (empty: any). `actor` is the request id, a space, and
-- who. `fields` are field, value pairs; an empty value removes the field.
-- RETURNS outcome, now
--   changed     then the record's new revision
--   unchanged   the record has these values; nothing happens
--   revoked     the key is; nothing happens
--   stale       the record has another revision; nothing happens
--   missing     there is no such key; nothing happens
--@keys key tiers
--@args now revisions actor fields...
--@include changes key_change
--@unless_frozen key
local record = call("HMGET", key, "account_id", "revision", "revoked_at")
if not record[1] then return { "missing", now } end
if record[3] then return { "revoked", now } end
if not is_seen(revisions, record[2]) then return { "stale", now } end
local before, after = differing_fields(key, fields)
if not before then return { "unchanged", now } end
return { "changed", now, change_key(key, tiers, now, actor, "key.patch", before, after) }
