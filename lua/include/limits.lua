--@include clock numbers unknown window
-- The limits of keys, and of accounts over all their keys: how they are read, refuse, and count. A new limit of a UTC period changes
-- this file alone of the scripts. Plain code on purpose: a table of limits that ADMIT loops over costs Redis a tenth more.

-- Counters of a key, or of all keys of an account that has limits over them: one text in the field `counters` of its
-- record (decision 0004). Its words: the clock (ms), the credits spent in the month (0 for an account), the UTC day, the requests
-- of that day, and of a key the limits that its latest admission was held to. src/records/packed-fields.ts reads and writes it, too.
local NO_COUNTERS = "0 0 -1 0"
local CLOCK_WORD, SPENT_WORD, DAY_COUNT_WORD = 1, 2, 4

-- Clock, credits spent, day, requests of the day, as texts.
local function read_counters(text)
  return string.match(text or NO_COUNTERS, "^([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+)")
end

local function counters_text(clock, spent, day, day_count)
  return clock .. " " .. spent .. " " .. day .. " " .. day_count
end

-- Changes words of the counters in a record of this name: `...` are places and texts.
local function change_counters(name, ...)
  local words = {}
  for word in string.gmatch(call("HGET", name, "counters") or NO_COUNTERS, "%S+") do words[#words + 1] = word end
  for at = 1, select("#", ...), 2 do words[select(at, ...)] = select(at + 1, ...) end
  call("HSET", name, "counters", table.concat(words, " "))
end

-- The limits and restrictions of a key are also one text in the field `terms` of its record, which is the same for many keys, so that the items
-- of a call read it once (decision 0004). The first ADMIT after a change makes it; whoever changes one of these fields removes it.
local TERM_FIELDS = { "tier", "rate_limit", "max_concurrent", "daily_limit", "monthly_credits", "expires_at", "revoked_at",
  "restrictions", "spends_in" }

-- The text by the fields of a key's record; nil without a record. `-` is what is not set.
local function terms_text(name)
  local f = call("HMGET", name, "account_id", unpack(TERM_FIELDS))
  if not f[1] then return nil end
  for at = 2, #f do f[at] = f[at] or "-" end
  return table.concat(f, " ", 2)
end

-- Its values by field; false for what is not set.
local function read_terms(text)
  local terms, at = {}, 0
  for word in string.gmatch(text, "%S+") do
    at = at + 1
    terms[TERM_FIELDS[at]] = word ~= "-" and word
  end
  return terms
end

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

-- Parsed terms, shared by the keys that have the same text: the limits resolved, as numbers and as one text.
local COMMON = {}
local function common_terms(text, tiers)
  local terms = COMMON[text]
  if terms then return terms end
  terms = read_terms(text)
  local tier = tier_limits(terms.tier, tiers)
  local rate, concurrent, daily = terms.rate_limit or tier.rate, terms.max_concurrent or tier.concurrent,
    terms.daily_limit or tier.daily
  terms.rate_limit, terms.max_concurrent, terms.daily_limit = rate + 0, concurrent + 0, daily + 0
  terms.limits = rate .. " " .. concurrent .. " " .. daily .. tier.shadow
  terms.tier_json, terms.shadow = tier.json, tier.shadow
  terms.__index, COMMON[text] = terms, terms
  return terms
end

-- The key's record with its limits resolved, or nil when there is none. `usable` is false once revoked or expired; `new_terms` are
-- those that ADMIT writes. The key's clock never runs backwards, so a step of the store's clock cannot reopen a window, a day or
-- a month.
local function read_key(name, now, tiers)
  local f = call("HMGET", name, "terms", "counters")
  local new_terms = not f[1] and terms_text(name) or nil
  local text = f[1] or new_terms
  if not text then return nil end
  local terms = common_terms(text, tiers)
  local counted_until, spent, counted_day, day_count = read_counters(f[2])
  local clock = math.max(now, counted_until)
  local day = math.floor(clock / DAY_MS)
  local is_same_day = counted_day + 0 == day
  return setmetatable({
    name = name,
    new_terms = new_terms,
    usable = not terms.revoked_at and (not terms.expires_at or clock < terms.expires_at + 0),
    clock = clock,
    counted_spent = spent,
    day = day,
    day_count = is_same_day and day_count + 0 or 0,
    is_same_day = is_same_day,
  }, terms)
end

-- False for a limit in shadow mode, which is only noted.
local function refuses(key, letter)
  if not string.find(key.shadow, letter, 1, true) then return true end
  key.noted = (key.noted or "") .. letter
  return false
end

-- Limits over all keys of an account. An account that has some has the field `limited`; then it also has a window, a set of
-- slots and a day of its own, which ADMIT, VOID, BIND and OBSERVE keep in step with those of its keys. Decision 0002.
-- `limited` is the account's revision when it got limits. A request says under which it was admitted, so that nothing is given
-- back to records that have begun after it.

-- The limits of an account with this `limited`; what it has not is infinite. Its clock never runs backwards while it has limits.
local function read_shared(account, limited, now)
  local f = call("HMGET", account, "rate_limit", "max_concurrent", "daily_limit", "counters")
  local counted_until, _, counted_day, day_count = read_counters(f[4])
  local tag, id = string.match(account, "^(tg:{p%d+}):account:(.*)$")
  local clock = math.max(now, counted_until)
  local day = math.floor(clock / DAY_MS)
  local is_same_day = counted_day + 0 == day
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
    day_count = is_same_day and day_count + 0 or 0,
  }
end

-- Reads what is used of them: the entries of its window in the last 60 s, how many in all, the oldest of them; its slots.
local function read_shared_use(shared)
  shared.live, shared.length, shared.oldest = read_window(shared.window, shared.clock)
  shared.active = call("SCARD", shared.slots)
end

-- A request's record of its admission to an account with limits: `limited` and the account's clock (ms).
local function shared_mark(shared)
  return shared.limited .. "@" .. int(shared.clock)
end

-- The clock of that admission, as a text; nil if the account has had no limits since then.
local function shared_stamp(shared, mark)
  local limited, clock = string.match(mark or "", "^(%d+)@(%d+)$")
  return shared and limited == shared.limited and clock or nil
end

-- ADMIT's answer if a limit refuses the request: the outcome, and what follows the numbers of the headers; else nothing. `live` of
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

-- The counters of a key or an account with one more request. `spent` is a text.
local function count_request(owner, spent)
  return counters_text(int(owner.clock), spent, int(owner.day), int(owner.day_count + 1))
end

-- Adds to what a record of this name counts, if it still is in the period of the request's admission (ms): -1 gives the request back,
-- 1 takes it again. Returns whether it is in the day of the admission.
local function change_counts(name, admitted_at, by)
  local _, _, day, day_count = read_counters(call("HGET", name, "counters"))
  local is_same_day = day + 0 == math.floor(admitted_at / DAY_MS)
  if is_same_day and day_count + by >= 0 then change_counters(name, DAY_COUNT_WORD, int(day_count + by)) end
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
    call("HDEL", account, "limited", "counters")
    call("UNLINK", tag .. ":account-window:" .. id, tag .. ":account-slots:" .. id)
  end
end
