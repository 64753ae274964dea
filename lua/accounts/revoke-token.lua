#!lua flags=allow-oom
-- REVOKE TOKEN: revokes a token of the management API, and some of those that were made with it, directly or not: it is called
-- again until none is left. It reads a family whole, which has at most 500 tokens that have not ended: one or two milliseconds.
--
-- BOUND  1200  a family of at most 500, of which 40 are revoked
-- `token_ids` is a hash (SHA-256 to token id), `ended_tokens` a zset (token id by when it expires or was revoked), `family`
-- one of token id by when it expires, without its first token. `actor` is the request id, a space, and who.
-- RETURNS outcome, now
--   revoked   also when it was before; then the token, and how many are left
--   missing   there is no such token; nothing happens
--@keys token token_ids ended_tokens family operators_family
--@args now token_id actor
--@include audit numbers
--@unless_frozen token
local REVOKED_MAX = 40
local prefix = string.sub(token, 1, -1 - #token_id)

local function revoke(id)
  local name = prefix .. id
  local sha256 = call("HGET", name, "sha256")
  if not sha256 then return end
  call("HSET", name, "revoked_at", int(now))
  call("HDEL", token_ids, sha256)
  call("ZADD", ended_tokens, int(now), id)
  call("ZREM", family, id)
  call("ZREM", operators_family, id)
  write_audit(token, now, actor, "token.revoke", "", id, { revoked_at = cjson.null }, { revoked_at = int(now) })
end

-- The members of the family that come from the token. Each is looked at once, as are those between that were revoked before.
local function descendants()
  local is_descendant, found = { [token_id] = true }, {}
  for _, id in ipairs(call("ZRANGE", family, 0, -1)) do
    local path, at = {}, id
    while at and is_descendant[at] == nil do
      path[#path + 1] = at
      at = call("HGET", prefix .. at, "parent")
    end
    for _, one in ipairs(path) do
      is_descendant[one] = at and is_descendant[at] or false
    end
    if is_descendant[id] and id ~= token_id then found[#found + 1] = id end
  end
  return found
end

local record = call("HMGET", token, "sha256", "revoked_at")
if not record[1] then return { "missing", now } end
-- First of all: from now on it makes no other. Those that are made meanwhile with what it made are found by the next call.
if not record[2] then revoke(token_id) end
local found = descendants()
for at = 1, math.min(REVOKED_MAX, #found) do
  revoke(found[at])
end
return { "revoked", now, call("HGETALL", token), math.max(0, #found - REVOKED_MAX) }
