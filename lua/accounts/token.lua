#!lua
-- TOKEN: creates a token of the management API. All tokens are in one partition, so that a digest leads to its token at once.
-- A family is a token that operators made, with all that were made with it, directly or not. Before one is created, some are
-- removed that ended 90 days ago, as the audit's records are; while there are as many tokens as there may be, some that
-- have ended at all.
--
-- BOUND  200  its record, and some tokens that have ended
-- `token_ids` is a hash (SHA-256 to token id), `ended_tokens` a zset (token id by when it expires or was revoked), `family`
-- one of token id by when it expires, without its first token; without a parent (empty) it has those that operators made,
-- and `parent_name` is the token. `most_text` is of all tokens that there may be, or that operators may have made. `actor`
-- is the request id, a space, and who. `fields` are field, value pairs.
-- RETURNS outcome, now
--   created        then the token as HGETALL returns it
--   full           there are as many as there may be, and none has ended; nothing happens
--   family_full    the family has as many as it may have that have not ended; nothing happens
--   parent_ended   the parent was revoked, or has expired; nothing happens
--@keys token tokens token_ids ended_tokens family parent_name
--@args now token_id actor parent most_text family_most_text fields...
--@include audit numbers words
--@unless_frozen token
local most, family_most = tonumber(most_text), tonumber(family_most_text)
local REMOVED_MAX = 10
local AUDITED_BYTES_MAX = 400

-- Removes some tokens that ended until this moment, those that ended first. Whoever removes a token removes the list of its
-- family: all that were made with it have ended, too.
local function remove_ended(latest)
  local prefix = string.sub(token, 1, -1 - #token_id)
  local families = string.gsub(prefix, ":token:$", ":token-family:")
  for _, id in ipairs(call("ZRANGEBYSCORE", ended_tokens, "-inf", int(latest), "LIMIT", 0, REMOVED_MAX)) do
    local sha256 = call("HGET", prefix .. id, "sha256")
    if sha256 then call("HDEL", token_ids, sha256) end
    call("DEL", prefix .. id, families .. id)
    call("ZREM", tokens, id)
    call("ZREM", ended_tokens, id)
  end
end

if parent ~= "" then
  local record = call("HMGET", parent_name, "sha256", "revoked_at", "expires_at")
  local has_expired = record[3] and not (tonumber(record[3]) > now)
  if not record[1] or record[2] or has_expired then return { "parent_ended", now } end
end
local is_full = call("ZCARD", tokens) >= most
remove_ended(is_full and now or now - AUDIT_KEPT_MS)
call("ZREMRANGEBYSCORE", family, "-inf", int(now))
local relatives = call("ZCARD", family)
-- Tokens never take the places that operators have.
if parent == "" and relatives >= most then return { "full", now } end
if parent ~= "" and relatives >= family_most then return { "family_full", now } end
if parent ~= "" and call("ZCARD", tokens) >= most then return { "full", now } end
call("HSET", token, "created_at", int(now), "by", by_of(actor), unpack(fields))
call("ZADD", tokens, int(now), token_id)
call("HSET", token_ids, call("HGET", token, "sha256"), token_id)
local after = {}
for at = 1, #fields, 2 do
  if not string.find(" sha256 root ", " " .. fields[at] .. " ", 1, true) then
    after[fields[at]] = cut_text(fields[at + 1], AUDITED_BYTES_MAX)
  end
end
if after.expires_at then call("ZADD", ended_tokens, after.expires_at, token_id) end
call("ZADD", family, after.expires_at or "+inf", token_id)
write_audit(token, now, actor, "token.create", "", token_id, {}, after)
return { "created", now, call("HGETALL", token) }
