--@include clock
-- Default limits of a tier, as texts, and which are in shadow mode. `tiers` is ";name rate concurrent daily;name ...;", the
-- default tier first. Letters behind the last number name limits in shadow mode, which count and do not refuse: r(ate),
-- c(oncurrent), d(aily). Further numbers are ignored. An unknown tier gets the first one, so that a typo never means "no limit". All items of a call
-- have the same tiers.
local TIER_LIMITS = {}
local function tier_limits(tier, tiers)
  local limits = TIER_LIMITS[tier]
  if not limits then
    local at = string.find(tiers, ";" .. tier .. " ", 1, true)
    local rate, concurrent, daily, shadow =
      string.match(tiers, "^;%S+ (%d+) (%d+) (%d+)[ %d]*(%a*);", at or 1)
    limits = { rate = rate, concurrent = concurrent, daily = daily, shadow = shadow, json = cjson.encode(tier) }
    TIER_LIMITS[tier] = limits
  end
  return limits
end

-- Texts become numbers by `+ 0` where it counts: `tonumber` converts them twice.

-- The key's record with its limits resolved, or nil when there is none; then the values of up to four further fields.
-- `usable` is false once revoked or expired. The key's clock never runs backwards, so a step of the store's clock cannot
-- reopen a window, a day or a month.
local function read_key(name, now, tiers, ...)
  local f = call("HMGET", name, "account_id", "tier", "rate_limit", "max_concurrent", "daily_limit",
    "expires_at", "revoked_at", "clock_ms", "day", "day_count", "monthly_credits", ...)
  if not f[1] then return nil end
  local clock = math.max(now, f[8] or 0)
  local tier = tier_limits(f[2], tiers)
  local rate, concurrent, daily = f[3] or tier.rate, f[4] or tier.concurrent, f[5] or tier.daily
  local day = math.floor(clock / DAY_MS)
  local is_same_day = (f[9] or -1) + 0 == day
  return {
    name = name,
    account_id = f[1],
    tier = f[2],
    tier_json = tier.json,
    rate_limit = rate + 0,
    max_concurrent = concurrent + 0,
    daily_limit = daily + 0,
    shadow = tier.shadow,
    limits = rate .. " " .. concurrent .. " " .. daily .. tier.shadow,
    expires_at = f[6],
    monthly_credits = f[11],
    usable = not f[7] and (not f[6] or clock < f[6] + 0),
    clock = clock,
    day = day,
    day_count = is_same_day and f[10] + 0 or 0,
    is_same_day = is_same_day,
  }, f[12], f[13], f[14], f[15]
end

-- False for a limit in shadow mode, which is only noted.
local function refuses(key, letter)
  if not string.find(key.shadow, letter, 1, true) then return true end
  key.noted = (key.noted or "") .. letter
  return false
end
