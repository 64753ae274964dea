--@include clock
--@include window
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
  return {
    limited = limited,
    rate_limit = tonumber(f[1] or math.huge),
    max_concurrent = tonumber(f[2] or math.huge),
    daily_limit = tonumber(f[3] or math.huge),
    window = tag .. ":account-window:" .. id,
    slots = tag .. ":account-slots:" .. id,
    clock = clock,
    day = day,
    day_count = tonumber(f[5] or -1) == day and tonumber(f[6]) or 0,
    stored_day = tonumber(f[5] or -1),
    stored_count = tonumber(f[6] or 0),
  }
end

-- Reads what is used of them: the entries of its window in the last 60 s, how many in all, the oldest of them; its slots.
local function read_shared_use(shared)
  shared.live, shared.length, shared.oldest = read_window(shared.window, shared.clock)
  shared.active = call("SCARD", shared.slots)
end

-- What a request says of its admission to an account with limits: `limited` and the account's clock (ms).
local function shared_mark(shared)
  return shared.limited .. " " .. string.format("%d", shared.clock)
end

-- The clock of that admission, as a text; nil if the account has had no limits since then.
local function shared_stamp(shared, mark)
  local limited, clock = string.match(mark or "", "^(%d+) (%d+)$")
  return shared and limited == shared.limited and clock or nil
end
