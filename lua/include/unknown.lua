--@include money numbers
-- Requests of an account whose outcome is unknown, by when their hold is due (`tg:{pNN}:unknown:<account id>`). UNCLEAR lists them; VOID
-- and BIND, which end the hold, remove them. An account with `limit` of them makes no further request until `blocked_until`, when
-- enough of these holds are due. Decision 0003.
local function unknown_of(account)
  return (string.gsub(account, ":account:", ":unknown:", 1))
end

-- Returns how many the account has, and until when it is blocked (ms; 0: it is not).
local function block_account(account, unknown, limit)
  local count = call("ZCARD", unknown)
  if count < limit then
    call("HDEL", account, "blocked_until", "unknown_limit")
    mark_extras(account)
    return count, 0
  end
  local blocked_until = tonumber(call("ZRANGE", unknown, count - limit, count - limit, "WITHSCORES")[2])
  call("HSET", account, "blocked_until", int(blocked_until), "unknown_limit", int(limit))
  mark_extras(account)
  return count, blocked_until
end

local function remove_unknown(account, request_id)
  local unknown = unknown_of(account)
  call("ZREM", unknown, request_id)
  local limit = call("HGET", account, "unknown_limit")
  if limit then block_account(account, unknown, tonumber(limit)) end
end

-- How long (ms) nothing frees one of these `count` slots, if all are taken by requests with an unknown outcome; else 0.
local function unknown_wait(account, slots, count, now)
  local unknown = call("ZINTER", 2, unknown_of(account), slots, "WEIGHTS", 1, 0, "WITHSCORES")
  return count > 0 and #unknown == 2 * count and math.max(0, tonumber(unknown[2]) - now) or 0
end
