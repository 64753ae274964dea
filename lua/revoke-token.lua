#!lua flags=allow-oom
-- REVOKE TOKEN: revokes a token of the management API, and some of those that were made with it, directly or not: it is called
-- again until none is left. It reads a family whole, which has at most 500 tokens that have not ended: one or two milliseconds.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  1200  a family of at most 500, of which 40 are revoked
-- KEYS  1 token (hash)  2 token ids (hash: SHA-256 to token id)  3 ended tokens (zset: token id by when it expires or was revoked)
--       4 family (zset: token id by when it expires; its first token is not in it)
--       5 those that operators made (zset: token id by when it expires)
-- ARGV  1 now (ms or empty)  2 token id  3 who: request id, a space, who
-- RETURNS outcome, now
--   revoked   also when it was before; then the token, and how many are left
--   missing   there is no such token; nothing happens
--@include audit
--@include clock
--@include numbers
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local token, token_id = KEYS[1], ARGV[2]
local REVOKED_MAX = 40
local prefix = string.sub(token, 1, -1 - #token_id)

local function revoke(id)
  local name = prefix .. id
  local sha256 = redis.call("HGET", name, "sha256")
  if not sha256 then return end
  redis.call("HSET", name, "revoked_at", int(now))
  redis.call("HDEL", KEYS[2], sha256)
  redis.call("ZADD", KEYS[3], int(now), id)
  redis.call("ZREM", KEYS[4], id)
  redis.call("ZREM", KEYS[5], id)
  write_audit(token, now, ARGV[3], "token.revoke", "", id, { revoked_at = cjson.null }, { revoked_at = int(now) })
end

-- The members of the family that come from the token. Each is looked at once, as are those between that were revoked before.
local function descendants()
  local is_descendant, found = { [token_id] = true }, {}
  for _, id in ipairs(redis.call("ZRANGE", KEYS[4], 0, -1)) do
    local path, at = {}, id
    while at and is_descendant[at] == nil do
      path[#path + 1] = at
      at = redis.call("HGET", prefix .. at, "parent")
    end
    for _, one in ipairs(path) do
      is_descendant[one] = at and is_descendant[at] or false
    end
    if is_descendant[id] and id ~= token_id then found[#found + 1] = id end
  end
  return found
end

local record = redis.call("HMGET", token, "sha256", "revoked_at")
if not record[1] then return { "missing", now } end
-- First of all: from now on it makes no other. Those that are made meanwhile with what it made are found by the next call.
if not record[2] then revoke(token_id) end
local found = descendants()
for at = 1, math.min(REVOKED_MAX, #found) do
  revoke(found[at])
end
return { "revoked", now, redis.call("HGETALL", token), math.max(0, #found - REVOKED_MAX) }
