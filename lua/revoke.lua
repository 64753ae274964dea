#!lua flags=allow-oom
-- REVOKE: an operator revokes a key for good.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  100  its record
-- KEYS  1 key (hash)  2 tiers (hash: tier to how many keys use it)
-- ARGV  1 now (ms or empty)  2 key id  3 who: request id, a space, who
-- RETURNS outcome, now
--   revoked           now
--   already_revoked   nothing happens
--   missing           there is no such key; nothing happens
--@include audit
--@include changed
--@include clock
--@include numbers
--@include tiers
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local key = KEYS[1]
local record = redis.call("HMGET", key, "account_id", "revoked_at")
if not record[1] then return { "missing", now } end
if record[2] then return { "already_revoked", now } end
note_changed(key, "key " .. ARGV[2])
redis.call("HSET", key, "revoked_at", int(now))
redis.call("HINCRBY", key, "revision", 1)
count_tier(key, KEYS[2])
write_audit(key, now, ARGV[3], "key.revoke", record[1], ARGV[2], { revoked_at = cjson.null }, { revoked_at = int(now) })
return { "revoked", now }
