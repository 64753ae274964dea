#!lua
-- TOKEN: an operator creates a token of the management API, or revokes one. All tokens are in one partition, so that a digest
-- leads to its token at once.
-- The fields of its records stand in src/store/records.ts.
--
-- KEYS  1 token (hash)  2 tokens (zset: token id by when it was created)  3 token ids (hash: SHA-256 to token id)
-- ARGV  1 now (ms or empty)  2 token id  3 action, as the audit has it: token.create or token.revoke
--       4 who: request id, a space, who  5 how many tokens there may be
--       6.. for token.create: field, value pairs
-- RETURNS outcome, now
--   created   then the token as HGETALL returns it
--   full      there are as many as there may be; nothing happens
--   revoked   then the token; also when it was revoked before, which changes nothing
--   missing   there is no such token; nothing happens
--@include audit
--@include clock
--@include numbers
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local token, token_id, action, actor = KEYS[1], ARGV[2], ARGV[3], ARGV[4]
if action == "token.create" then
  if redis.call("ZCARD", KEYS[2]) >= tonumber(ARGV[5]) then return { "full", now } end
  redis.call("HSET", token, "created_at", int(now), "by", by_of(actor), unpack(ARGV, 6))
  redis.call("ZADD", KEYS[2], int(now), token_id)
  redis.call("HSET", KEYS[3], redis.call("HGET", token, "sha256"), token_id)
  local after = {}
  for at = 6, #ARGV, 2 do
    if ARGV[at] ~= "sha256" then after[ARGV[at]] = ARGV[at + 1] end
  end
  write_audit(token, now, actor, action, "", token_id, {}, after)
  return { "created", now, redis.call("HGETALL", token) }
end

local record = redis.call("HMGET", token, "sha256", "revoked_at")
if not record[1] then return { "missing", now } end
if not record[2] then
  redis.call("HSET", token, "revoked_at", int(now))
  redis.call("HDEL", KEYS[3], record[1])
  write_audit(token, now, actor, action, "", token_id, { revoked_at = cjson.null }, { revoked_at = int(now) })
end
return { "revoked", now, redis.call("HGETALL", token) }
