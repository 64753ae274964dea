--@include numbers
-- Keys that end, by when their accounts are told (`tg:{pNN}:expiring`, zset: key id by ms): so long before they do.
local EXPIRY_NOTICE_MS = 7 * 86400000

local function list_expiry(key, key_id, expires_at)
  local list = string.match(key, "^tg:{p%d+}") .. ":expiring"
  if expires_at then
    call("ZADD", list, int(tonumber(expires_at) - EXPIRY_NOTICE_MS), key_id)
  else
    call("ZREM", list, key_id)
  end
end
