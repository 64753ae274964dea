#!lua
-- TOKEN: an operator creates a token of the management API, or revokes one. All tokens are in one partition, so that a digest
-- leads to its token at once. Before one is created, some are removed that ended 90 days ago, as the audit's records are; while
-- there are as many tokens as there may be, some that have ended at all.
-- The fields of its records stand in src/store/records.ts.
--
-- BOUND  200  its record, and some tokens that have ended
-- KEYS  1 token (hash)  2 tokens (zset: token id by when it was created)  3 token ids (hash: SHA-256 to token id)
--       4 ended tokens (zset: token id by when it expires or was revoked)
-- ARGV  1 now (ms or empty)  2 token id  3 action, as the audit has it: token.create or token.revoke
--       4 who: request id, a space, who  5 how many tokens there may be
--       6.. for token.create: field, value pairs
-- RETURNS outcome, now
--   created   then the token as HGETALL returns it
--   full      there are as many as there may be, and none has ended; nothing happens
--   revoked   then the token; also when it was revoked before, which changes nothing
--   missing   there is no such token; nothing happens
--@include audit
--@include clock
--@include numbers
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local token, token_id, action, actor = KEYS[1], ARGV[2], ARGV[3], ARGV[4]
local REMOVED_MAX = 10

-- Removes some tokens that ended until this moment, those that ended first.
local function remove_ended(latest)
  local prefix = string.sub(token, 1, -1 - #token_id)
  for _, id in ipairs(redis.call("ZRANGEBYSCORE", KEYS[4], "-inf", int(latest), "LIMIT", 0, REMOVED_MAX)) do
    local sha256 = redis.call("HGET", prefix .. id, "sha256")
    if sha256 then redis.call("HDEL", KEYS[3], sha256) end
    redis.call("DEL", prefix .. id)
    redis.call("ZREM", KEYS[2], id)
    redis.call("ZREM", KEYS[4], id)
  end
end

if action == "token.create" then
  local is_full = redis.call("ZCARD", KEYS[2]) >= tonumber(ARGV[5])
  remove_ended(is_full and now or now - AUDIT_KEPT_MS)
  if redis.call("ZCARD", KEYS[2]) >= tonumber(ARGV[5]) then return { "full", now } end
  redis.call("HSET", token, "created_at", int(now), "by", by_of(actor), unpack(ARGV, 6))
  redis.call("ZADD", KEYS[2], int(now), token_id)
  redis.call("HSET", KEYS[3], redis.call("HGET", token, "sha256"), token_id)
  local after = {}
  for at = 6, #ARGV, 2 do
    if ARGV[at] ~= "sha256" then after[ARGV[at]] = ARGV[at + 1] end
  end
  if after.expires_at then redis.call("ZADD", KEYS[4], after.expires_at, token_id) end
  write_audit(token, now, actor, action, "", token_id, {}, after)
  return { "created", now, redis.call("HGETALL", token) }
end

local record = redis.call("HMGET", token, "sha256", "revoked_at")
if not record[1] then return { "missing", now } end
if not record[2] then
  redis.call("HSET", token, "revoked_at", int(now))
  redis.call("HDEL", KEYS[3], record[1])
  redis.call("ZADD", KEYS[4], int(now), token_id)
  write_audit(token, now, actor, action, "", token_id, { revoked_at = cjson.null }, { revoked_at = int(now) })
end
return { "revoked", now, redis.call("HGETALL", token) }
