--@include clock
--@include numbers
--@include unknown
--@include window
-- The limits of keys, and of accounts over all their keys: how they are read, refuse, and count. A new limit of a UTC period changes
-- this file alone of the scripts. Plain code on purpose: a table of limits that ADMIT loops over costs Redis a tenth more.

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
    "expires_at", "revoked_at", "clock_ms", "day", "day_count", "monthly_credits", "restrictions", ...)
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
    restrictions = f[12],
    usable = not f[7] and (not f[6] or clock < f[6] + 0),
    clock = clock,
    day = day,
    day_count = is_same_day and f[10] + 0 or 0,
    is_same_day = is_same_day,
  }, f[13], f[14], f[15], f[16]
end

-- False for a limit in shadow mode, which is only noted.
local function refuses(key, letter)
  if not string.find(key.shadow, letter, 1, true) then return true end
  key.noted = (key.noted or "") .. letter
  return false
end

-- Limits over all keys of an account. An account that has some has the field `limited`; then it also has a window, a set of
-- slots and a day of its own, which ADMIT, VOID, BIND and OBSERVE keep in step with those of its keys. Decision 0055.
-- `limited` is the account's revision when it got limits. A request says under which it was admitted, so that nothing is given
-- back to records that have begun after it.

-- The limits of an account with this `limited`; what it has not is infinite. Its clock never runs backwards while it has limits.
local function read_shared(account, limited, now)
  local f = call("HMGET", account, "rate_limit", "max_concurrent", "daily_limit", "clock_ms", "day", "day_count")
  local tag, id = string.match(account, "^(tg:{p%d+}):account:(.*)$")
  local clock = math.max(now, tonumber(f[4] or 0))
  local day = math.floor(clock / DAY_MS)
  local is_same_day = tonumber(f[5] or -1) == day
  return {
    limited = limited,
    rate_limit = tonumber(f[1] or math.huge),
    max_concurrent = tonumber(f[2] or math.huge),
    daily_limit = tonumber(f[3] or math.huge),
    window = tag .. ":account-window:" .. id,
    slots = tag .. ":account-slots:" .. id,
    clock = clock,
    day = day,
    is_same_day = is_same_day,
    day_count = is_same_day and tonumber(f[6]) or 0,
  }
end

-- Reads what is used of them: the entries of its window in the last 60 s, how many in all, the oldest of them; its slots.
local function read_shared_use(shared)
  shared.live, shared.length, shared.oldest = read_window(shared.window, shared.clock)
  shared.active = call("SCARD", shared.slots)
end

-- What a request says of its admission to an account with limits: `limited` and the account's clock (ms).
local function shared_mark(shared)
  return shared.limited .. "@" .. int(shared.clock)
end

-- The clock of that admission, as a text; nil if the account has had no limits since then.
local function shared_stamp(shared, mark)
  local limited, clock = string.match(mark or "", "^(%d+)@(%d+)$")
  return shared and limited == shared.limited and clock or nil
end

-- What ADMIT answers if a limit refuses the request: the outcome, and what follows the numbers of the headers; else nothing. `live` of
-- `window` and `active` of `slots` are the key's; what an account has used is read here.
local function refusal_of(key, window, live, slots, active, account, shared, now)
  if live >= key.rate_limit and refuses(key, "r") then
    return "rate_limited", wait_for(window, key.rate_limit, now), "key"
  end
  if shared then
    read_shared_use(shared)
    if shared.live >= shared.rate_limit then
      return "rate_limited", wait_for(shared.window, shared.rate_limit, now), "account"
    end
  end
  if key.day_count >= key.daily_limit and refuses(key, "d") then
    return "daily_limited", (key.day + 1) * DAY_MS - now, "key", int(key.daily_limit), int(key.day_count)
  end
  if shared and shared.day_count >= shared.daily_limit then
    return "daily_limited", (shared.day + 1) * DAY_MS - now, "account", int(shared.daily_limit), int(shared.day_count)
  end
  if active >= key.max_concurrent and refuses(key, "c") then
    return "concurrency_limited", "key", unknown_wait(account, slots, active, now)
  end
  if shared and shared.active >= shared.max_concurrent then
    return "concurrency_limited", "account", unknown_wait(account, shared.slots, shared.active, now)
  end
end

-- Fields of a key's or an account's record, and their values, that count one more request in its UTC periods.
local function counted_request(owner)
  if owner.is_same_day then return "day_count", int(owner.day_count + 1) end
  return "day", int(owner.day), "day_count", int(owner.day_count + 1)
end

-- Adds to what a record of this name counts, if it still is in the period of the request's admission (ms): -1 gives the request back,
-- 1 takes it again. Returns whether it is in the day of the admission.
local function change_counts(name, admitted_at, by)
  local counted = call("HMGET", name, "day", "day_count")
  local is_same_day = tonumber(counted[1]) == math.floor(admitted_at / DAY_MS)
  if is_same_day and tonumber(counted[2]) + by >= 0 then call("HINCRBY", name, "day_count", by) end
  return is_same_day
end

-- Limits of UTC periods that are in force, as CREDITS answers them: the account's where it leaves less than the key's.
local function period_limits(key, shared)
  if shared and shared.daily_limit - shared.day_count < key.daily_limit - key.day_count then return shared.daily_limit end
  return key.daily_limit
end

-- Says in an account's record whether it has limits over all its keys, after they or its revision have changed.
-- Without limits it keeps no records of its own; UNLINK frees a large one beside what Redis serves.
local function mark_limited(account)
  local f = call("HMGET", account, "rate_limit", "max_concurrent", "daily_limit", "limited", "revision")
  local has_limits = f[1] or f[2] or f[3]
  if has_limits and not f[4] then
    call("HSET", account, "limited", f[5])
  elseif f[4] and not has_limits then
    local tag, id = string.match(account, "^(tg:{p%d+}):account:(.*)$")
    call("HDEL", account, "limited", "clock_ms", "day", "day_count")
    call("UNLINK", tag .. ":account-window:" .. id, tag .. ":account-slots:" .. id)
  end
end
