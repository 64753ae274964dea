-- Stands in front of every verb (src/store/scripts.ts joins them). Only functions; no reads, no writes.
-- Every verb takes ARGV[1] = now in Unix ms (empty: the store's own TIME; given only by tests)
-- and ARGV[2] = the tiers as ";name rate concurrent daily;name …;", the default tier first. Letters behind the last
-- number name limits in shadow mode, which count and do not refuse: r(ate), c(oncurrent), d(aily).

local WINDOW_MS = 60000
local DAY_MS = 86400000

-- The store's clock, read once per call.
local NOW
local function store_now()
  if NOW then return NOW end
  if ARGV[1] ~= "" then
    NOW = tonumber(ARGV[1])
  else
    local t = redis.call("TIME")
    NOW = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  return NOW
end

-- `..` and JSON print 14 digits; amounts and stamps have up to 16. Amounts are answered in this form too: ioredis loses
-- the last bit of integers near 2^53.
local function int(n)
  return string.format("%d", n)
end

-- The score in `done` of a request that ends now: when it may be forgotten. A request of an earlier release has no
-- retention of its own (false): COLLECT finds it at once and puts it off by the caller's.
local function forget_at(now, retention_ms)
  return int(now + tonumber(retention_ms or 0))
end

-- Default limits of a tier, as texts, and which are in shadow mode. An unknown tier gets the first one, so that a typo
-- never means "no limit".
local TIER_LIMITS = {}
local function tier_limits(tier)
  local limits = TIER_LIMITS[tier]
  if not limits then
    local at = string.find(ARGV[2], ";" .. tier .. " ", 1, true)
    local rate, concurrent, daily, shadow = string.match(ARGV[2], " (%d+) (%d+) (%d+)(%a*);", at or 1)
    limits = { rate, concurrent, daily, shadow }
    TIER_LIMITS[tier] = limits
  end
  return limits[1], limits[2], limits[3], limits[4]
end

-- The key's record with its limits resolved, or nil when there is none. `usable` is false once revoked or expired.
-- The key's clock never runs backwards, so a step of the store's clock cannot reopen a window or a day.
local function read_key(name, now)
  local f = redis.call("HMGET", name, "account_id", "tier", "rate_limit", "max_concurrent", "daily_limit",
    "expires_at", "revoked_at", "clock_ms", "day", "day_count")
  if not f[1] then return nil end
  local clock = math.max(now, tonumber(f[8] or 0))
  local rate, concurrent, daily, shadow = tier_limits(f[2])
  rate, concurrent, daily = f[3] or rate, f[4] or concurrent, f[5] or daily
  local day = math.floor(clock / DAY_MS)
  return {
    account_id = f[1],
    tier = f[2],
    rate_limit = tonumber(rate),
    max_concurrent = tonumber(concurrent),
    daily_limit = tonumber(daily),
    shadow = shadow,
    limits = rate .. " " .. concurrent .. " " .. daily .. shadow,
    usable = not f[7] and (not f[6] or clock < tonumber(f[6])),
    clock = clock,
    day = day,
    day_count = tonumber(f[9] or -1) == day and tonumber(f[10]) or 0,
  }
end

local function is_final(status)
  return status == "completed" or status == "failed"
end

local function stamp_at(window, index)
  return tonumber(redis.call("LINDEX", window, index))
end

-- What lives in the window (newest first) in the last 60 s before `clock`: how many entries, of how many in all, and
-- the oldest of them (nil: none). Reads only: trimming without storing the clock would forget entries that a step
-- backwards brings to life again.
local function read_window(window, clock)
  local length = redis.call("LLEN", window)
  if length == 0 then return 0, 0 end
  local since = clock - WINDOW_MS
  local oldest = stamp_at(window, -1)
  if oldest > since then return length, length, oldest end
  -- How many have left: mostly a few, so the search begins with the oldest and doubles its steps.
  local gone, step = 1, 2
  while step <= length and stamp_at(window, -step) <= since do
    gone = step
    step = step * 2
  end
  local most = math.min(step - 1, length)
  while gone < most do
    local middle = math.ceil((gone + most) / 2)
    if stamp_at(window, -middle) <= since then gone = middle else most = middle - 1 end
  end
  return length - gone, length, stamp_at(window, -gone - 1)
end

-- A task's record, or nil: whether its id is disputed, the request that owns the id, its key and account, when it was
-- bound (ms); once the upstream has said something of it, also when that was (ms), the status and the data (JSON), else
-- three empty texts.
local function read_task(name)
  local text = redis.call("GET", name)
  if not text then return nil end
  local mark, request_id, key_id, account_id, bound_at, observed_at, status, data =
    string.match(text, "^(!?)(%S+) (%S+) (%S+) (%S+) ?(%S*) ?(%S*) ?(.*)$")
  return {
    text = text,
    is_disputed = mark == "!",
    request_id = request_id,
    key_id = key_id,
    account_id = account_id,
    bound_at = bound_at,
    observed_at = observed_at,
    status = status,
    data = data,
  }
end

-- The request that owns a task id, by the text of its record.
local function read_owner(text)
  return string.match(text, "^!?(%S+)")
end

-- The upstream gave a task id that another request owns. From now on nobody can tell whose video it speaks of: what it
-- says must reach no other account, and replace no answer that was given. A running task that the same account asked for
-- twice goes on.
local function dispute(name, account_id)
  local task = read_task(name)
  if not task or task.is_disputed then return end
  if task.account_id ~= account_id or is_final(task.status) then redis.call("SET", name, "!" .. task.text) end
end

-- On a Redis Cluster a task id may be disputed before its owner's BIND. What stands for the record until then, and of which
-- account the second request is, or nil for a record.
local function noted_text(request_id, account_id)
  return "!" .. request_id .. " " .. account_id .. " ? 0"
end
local function read_noted(text)
  return string.match(text, "^!%S+ (%S+) %? 0$")
end

-- Its text before the upstream has said anything; what it says follows after a space.
local function task_text(request_id, key_id, account_id, bound_at)
  return request_id .. " " .. key_id .. " " .. account_id .. " " .. bound_at
end

-- A reply: outcome, the store's clock, the five numbers of the headers, the key's tier, then what the verb adds.
-- An empty window resets now.
local function reply_with(outcome, now, key, live, oldest, active, ...)
  return { outcome, now, key.rate_limit, math.max(0, key.rate_limit - live), oldest and oldest + WINDOW_MS or now,
    key.max_concurrent, active, key.tier, ... }
end

-- The same with the numbers as they are stored.
local function reply(outcome, now, key, window, slots, ...)
  if not key then return { outcome, now, 0, 0, now, 0, 0, "", ... } end
  local live, _, oldest = read_window(window, key.clock)
  return reply_with(outcome, now, key, live, oldest, redis.call("SCARD", slots), ...)
end

-- Moves money and writes the ledger in the same step: account and stream never disagree. Each entry names the one
-- before it of its account, and the account the last one, so that the latest are found without a list of their own.
-- `at` is when (ms, as a text); `held` and `used` are added to what is held and to the total used; `entry` is a flat list
-- of further field, value pairs of the stream entry.
local function post(account, ledger, at, account_id, kind, amount, held, used, endpoint, reason, task_id, entry)
  local money = redis.call("HMGET", account, "balance", "held", "total_used", "last_entry")
  local balance = int(tonumber(money[1] or 0) + amount)
  local id = redis.call("XADD", ledger, "*", "account_id", account_id, "type", kind, "amount", int(amount),
    "balance_after", balance, "endpoint", endpoint, "reason", reason, "task_id", task_id, "at", at,
    "previous", money[4] or "", unpack(entry))
  redis.call("HSET", account, "balance", balance, "held", int(tonumber(money[2] or 0) + held),
    "total_used", int(tonumber(money[3] or 0) + used), "last_entry", id)
end

-- Up to `most` entries of an account, from its last one back, as XRANGE answers them.
local function latest(ledger, last, most)
  local entries = {}
  while last and last ~= "" and #entries < most do
    local entry = redis.call("XRANGE", ledger, last, last)[1]
    if not entry then break end
    entries[#entries + 1] = entry
    last = nil
    for at = 1, #entry[2], 2 do
      if entry[2][at] == "previous" then last = entry[2][at + 1] end
    end
  end
  return entries
end
