-- Stands in front of every verb (src/store/scripts.ts joins them). Only functions; no reads, no writes.
-- Every verb takes ARGV[1] = now in Unix ms (empty: the store's own TIME; given only by tests)
-- and ARGV[2] = the tiers as ";name rate concurrent daily;name …;", the default tier first.

local WINDOW_MS = 60000
local DAY_MS = 86400000
local RECENT_TRANSACTIONS = 10

-- The store's clock, read once per script.
local function store_now()
  if ARGV[1] ~= "" then return tonumber(ARGV[1]) end
  local t = redis.call("TIME")
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- `..` prints 14 digits; amounts and stamps have up to 16. Amounts are answered in this form too: ioredis loses the
-- last bit of integers near 2^53.
local function int(n)
  return string.format("%.0f", n)
end

-- Default limits of a tier; an unknown tier gets the first one, so that a typo never means "no limit".
local function tier_limits(tier)
  local at = string.find(ARGV[2], ";" .. tier .. " ", 1, true)
  local rate, concurrent, daily = string.match(ARGV[2], " (%d+) (%d+) (%d+);", at or 1)
  return tonumber(rate), tonumber(concurrent), tonumber(daily)
end

-- The key's record with its limits resolved, or nil when there is none. `usable` is false once revoked or expired.
-- The key's clock never runs backwards, so a step of the store's clock cannot reopen a window or a day.
local function read_key(name, now)
  local f = redis.call("HMGET", name, "account_id", "tier", "rate_limit", "max_concurrent", "daily_limit",
    "expires_at", "revoked_at", "clock_ms", "day", "day_count")
  if not f[1] then return nil end
  local clock = math.max(now, tonumber(f[8] or 0))
  local rate, concurrent, daily = tier_limits(f[2])
  local day = math.floor(clock / DAY_MS)
  return {
    account_id = f[1],
    tier = f[2],
    rate_limit = tonumber(f[3] or rate),
    max_concurrent = tonumber(f[4] or concurrent),
    daily_limit = tonumber(f[5] or daily),
    usable = not f[7] and (not f[6] or clock < tonumber(f[6])),
    clock = clock,
    day = day,
    day_count = tonumber(f[9] or -1) == day and tonumber(f[10]) or 0,
  }
end

local function stamp_at(window, index)
  return tonumber(redis.call("LINDEX", window, index))
end

-- How many entries of the window (newest first) lie in the last 60 s before `clock`. Reads only: trimming
-- without storing the clock would forget entries that a step backwards brings to life again.
local function live_entries(window, clock)
  local length = redis.call("LLEN", window)
  local since = clock - WINDOW_MS
  if length == 0 or stamp_at(window, -1) > since then return length, length end
  local low, high = 0, length - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if stamp_at(window, middle) > since then low = middle + 1 else high = middle end
  end
  return low, length
end

-- The unix ms at which the oldest of `live` entries leaves the window; `now` when there is none.
local function reset_at(window, live, now)
  if live == 0 then return now end
  return stamp_at(window, live - 1) + WINDOW_MS
end

-- A reply: outcome, the store's clock, the five numbers of the headers, the key's tier, then what the verb adds.
local function reply(outcome, now, key, window, slots, ...)
  if not key then return { outcome, now, 0, 0, now, 0, 0, "", ... } end
  local live = live_entries(window, key.clock)
  return { outcome, now, key.rate_limit, math.max(0, key.rate_limit - live),
    reset_at(window, live, now), key.max_concurrent, redis.call("SCARD", slots), key.tier, ... }
end

-- Moves money and writes the ledger in the same step: balance, stream and recent transactions never disagree.
-- `entry` is a flat list of further field, value pairs of the stream entry.
local function post(account, ledger, recent, now, account_id, kind, amount, endpoint, reason, task_id, entry)
  local balance = redis.call("HINCRBY", account, "balance", int(amount))
  local fields = { "account_id", account_id, "type", kind, "amount", int(amount), "balance_after", int(balance),
    "endpoint", endpoint, "reason", reason, "task_id", task_id, "at", int(now) }
  for i = 1, #entry do fields[#fields + 1] = entry[i] end
  local id = redis.call("XADD", ledger, "*", unpack(fields))
  local line = table.concat({ id, kind, int(amount), int(balance), endpoint, reason, task_id, int(now) }, "|")
  redis.call("LPUSH", recent, line)
  redis.call("LTRIM", recent, 0, RECENT_TRANSACTIONS - 1)
  return balance
end
