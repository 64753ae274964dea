#!lua flags=allow-oom
-- REVOKE TOKEN: revokes a token of the management API with all that were made with it, directly or not. It reads a family
-- whole, which has at most 500 tokens that have not ended; revoking so many takes some milliseconds.
-- The fields of its records stand in src/store/records.ts.
--
-- KEYS  1 token (hash)  2 token ids (hash: SHA-256 to token id)  3 ended tokens (zset: token id by when it expires or was revoked)
--       4 family (zset: token id by when it expires; its first token is not in it)
--       5 those that operators made (zset: token id by when it expires)
-- ARGV  1 now (ms or empty)  2 token id  3 who: request id, a space, who
-- RETURNS outcome, now
--   revoked   then the token; also when it was revoked before, which changes nothing
--   missing   there is no such token; nothing happens
--@include audit
--@include clock
--@include numbers
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local token, token_id = KEYS[1], ARGV[2]
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

-- The members of the family by whether they come from the token. Each is looked at once.
local function descendants()
  local parents, is_descendant, found = {}, { [token_id] = true }, {}
  local family = redis.call("ZRANGE", KEYS[4], 0, -1)
  for _, id in ipairs(family) do
    parents[id] = redis.call("HGET", prefix .. id, "parent")
  end
  for _, id in ipairs(family) do
    local path, at = {}, id
    while at and is_descendant[at] == nil do
      path[#path + 1] = at
      at = parents[at]
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
if not record[2] then
  for _, id in ipairs(descendants()) do
    revoke(id)
  end
  revoke(token_id)
end
return { "revoked", now, redis.call("HGETALL", token) }
