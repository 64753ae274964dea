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
