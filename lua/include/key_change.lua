--@include audit changes keys words
-- Writes a change of a key's record: `before` and `after` are what differs. Returns the record's new revision.
local function change_key(key, tiers, now, actor, action, before, after)
  local key_id = string.match(key, ":key:(.*)$")
  local record = call("HMGET", key, "account_id", "label")
  -- A rotation without overlap revokes the old key.
  if after.revoked_at and after.revoked_at ~= cjson.null then tell_revoked(key, now, record[1], key_id, record[2]) end
  note_changed(key, "key " .. key_id)
  change_words_of_text("ZREM", key, before.label, record[1] .. "@" .. key_id)
  set_fields(key, after)
  change_words_of_text("ZADD", key, after.label, record[1] .. "@" .. key_id)
  call("HDEL", key, "terms")
  if after.expires_at then list_expiry(key, key_id, after.expires_at ~= cjson.null and after.expires_at) end
  local revision = call("HINCRBY", key, "revision", 1)
  count_tier(key, tiers)
  write_audit(key, now, actor, action, record[1], key_id, before, after)
  return revision
end
