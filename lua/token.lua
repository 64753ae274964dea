#!lua
-- TOKEN: creates a token of the management API. All tokens are in one partition, so that a digest leads to its token at once.
-- A family is a token that operators made, with all that were made with it, directly or not. Before one is created, some are
-- removed that ended 90 days ago, as the audit's records are; while there are as many tokens as there may be, some that
-- have ended at all.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  200  its record, and some tokens that have ended
-- KEYS  1 token (hash)  2 tokens (zset: token id by when it was created)  3 token ids (hash: SHA-256 to token id)
--       4 ended tokens (zset: token id by when it expires or was revoked)
--       5 family (zset: token id by when it expires; its first token is not in it); without a parent those that operators made
--       6 parent (hash); without a parent the token
-- ARGV  1 now (ms or empty)  2 token id  3 who: request id, a space, who  4 parent's id (empty: operators make it)
--       5 how many tokens there may be; how many operators may have made  6 how many there may be in a family
--       7.. field, value pairs
-- RETURNS outcome, now
--   created        then the token as HGETALL returns it
--   full           there are as many as there may be, and none has ended; nothing happens
--   family_full    the family has as many as it may have that have not ended; nothing happens
--   parent_ended   the parent was revoked, or has expired; nothing happens
--@include audit
--@include clock
--@include numbers
--@include text
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local token, token_id, parent = KEYS[1], ARGV[2], ARGV[4]
local most, family_most = tonumber(ARGV[5]), tonumber(ARGV[6])
local REMOVED_MAX = 10
local AUDITED_BYTES_MAX = 400

-- Removes some tokens that ended until this moment, those that ended first. Whoever removes a token removes the list of its
-- family: all that were made with it have ended, too.
local function remove_ended(latest)
  local prefix = string.sub(token, 1, -1 - #token_id)
  local families = string.gsub(prefix, ":token:$", ":token-family:")
  for _, id in ipairs(redis.call("ZRANGEBYSCORE", KEYS[4], "-inf", int(latest), "LIMIT", 0, REMOVED_MAX)) do
    local sha256 = redis.call("HGET", prefix .. id, "sha256")
    if sha256 then redis.call("HDEL", KEYS[3], sha256) end
    redis.call("DEL", prefix .. id, families .. id)
    redis.call("ZREM", KEYS[2], id)
    redis.call("ZREM", KEYS[4], id)
  end
end

if parent ~= "" then
  local record = redis.call("HMGET", KEYS[6], "sha256", "revoked_at", "expires_at")
  local has_expired = record[3] and not (tonumber(record[3]) > now)
  if not record[1] or record[2] or has_expired then return { "parent_ended", now } end
end
local is_full = redis.call("ZCARD", KEYS[2]) >= most
remove_ended(is_full and now or now - AUDIT_KEPT_MS)
redis.call("ZREMRANGEBYSCORE", KEYS[5], "-inf", int(now))
local relatives = redis.call("ZCARD", KEYS[5])
-- Tokens never take the places that operators have.
if parent == "" and relatives >= most then return { "full", now } end
if parent ~= "" and relatives >= family_most then return { "family_full", now } end
if parent ~= "" and redis.call("ZCARD", KEYS[2]) >= most then return { "full", now } end
redis.call("HSET", token, "created_at", int(now), "by", by_of(ARGV[3]), unpack(ARGV, 7))
redis.call("ZADD", KEYS[2], int(now), token_id)
redis.call("HSET", KEYS[3], redis.call("HGET", token, "sha256"), token_id)
local after = {}
for at = 7, #ARGV, 2 do
  if not string.find(" sha256 root ", " " .. ARGV[at] .. " ", 1, true) then
    after[ARGV[at]] = cut_text(ARGV[at + 1], AUDITED_BYTES_MAX)
  end
end
if after.expires_at then redis.call("ZADD", KEYS[4], after.expires_at, token_id) end
redis.call("ZADD", KEYS[5], after.expires_at or "+inf", token_id)
write_audit(token, now, ARGV[3], "token.create", "", token_id, {}, after)
return { "created", now, redis.call("HGETALL", token) }
