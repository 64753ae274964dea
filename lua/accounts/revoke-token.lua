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

-- The members of the family that come from the token, children before their parents: TOKEN may remove one that has ended, and what
-- it made is found by its record. Each is looked at once, as are those between that were revoked before.
local function descendants()
  local depths, found = { [token_id] = 0 }, {}
  for _, id in ipairs(call("ZRANGE", family, 0, -1)) do
    local path, at = {}, id
    while at and depths[at] == nil do
      path[#path + 1] = at
      at = call("HGET", prefix .. at, "parent")
    end
    local depth = at and depths[at]
    for one = #path, 1, -1 do
      depth = depth and depth + 1
      depths[path[one]] = depth
    end
    if depths[id] and id ~= token_id then found[#found + 1] = id end
  end
  table.sort(found, function(one, other) return depths[one] > depths[other] end)
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
-- Its record stays until all have ended.
local is_done = #found <= REVOKED_MAX
call("ZADD", ended_tokens, is_done and (record[2] or int(now)) or int(now + AUDIT_KEPT_MS), token_id)
return { "revoked", now, call("HGETALL", token), math.max(0, #found - REVOKED_MAX) }
