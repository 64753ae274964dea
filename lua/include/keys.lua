--@include events numbers
-- Counts a key under its tier in `tiers` (hash of the partition: tier to how many keys use it); one that is revoked uses
-- none. The key's `counted` says where it is counted already, so this may run any number of times.
local function count_tier(key, tiers)
  local f = call("HMGET", key, "tier", "revoked_at", "counted")
  local tier, counted = f[1] and not f[2] and f[1], f[3]
  if tier == counted then return end
  if counted and call("HINCRBY", tiers, counted, -1) <= 0 then call("HDEL", tiers, counted) end
  if tier then
    call("HINCRBY", tiers, tier, 1)
    call("HSET", key, "counted", tier)
  else
    call("HDEL", key, "counted")
  end
end

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

-- Tells an account that a key of it was revoked (`key.revoked`). `label` is nil or false without one.
local function tell_revoked(key, now, account_id, key_id, label)
  local account = string.match(key, "^tg:{p%d+}") .. ":account:" .. account_id
  local data = cjson.encode({ key_id = key_id, label = label or nil })
  add_event(account, now, account_id, call("HGET", account, "webhooks"), "key.revoked", key_id, data, data)
end
