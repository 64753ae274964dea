#!lua
-- CHANGE: an operator changes a key's record.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  200  its record
-- KEYS  1 key (hash)  2 tiers (hash: tier to how many keys use it)
-- ARGV  1 now (ms or empty)  2 field that must not be there yet (empty: none)  3 the record's revisions, with commas (empty: any)
--       4 who: request id, a space, who  5 action, as the audit has it
--       6.. field, value pairs; an empty value removes the field
-- RETURNS outcome, now
--   changed     then the record's new revision
--   unchanged   the record has these values; nothing happens
--   kept        the field is there; nothing happens
--   stale       the record has another revision; nothing happens
--   missing     there is no such key; nothing happens
--@include audit
--@include changed
--@include clock
--@include fields
--@include revision
--@include tiers
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local key = KEYS[1]
local record = redis.call("HMGET", key, "account_id", "revision")
if not record[1] then return { "missing", now } end
if ARGV[2] ~= "" and redis.call("HEXISTS", key, ARGV[2]) == 1 then return { "kept", now } end
if not is_seen(ARGV[3], record[2]) then return { "stale", now } end
local before, after = differing_fields(key, { unpack(ARGV, 6) })
if not before then return { "unchanged", now } end
local key_id = string.match(key, ":key:(.*)$")
note_changed(key, "key " .. key_id)
set_fields(key, after)
local revision = redis.call("HINCRBY", key, "revision", 1)
count_tier(key, KEYS[2])
write_audit(key, now, ARGV[4], ARGV[5], record[1], key_id, before, after)
return { "changed", now, revision }
