--@include window
-- A reply: outcome, the store's clock, the five numbers of the headers, the key's tier, then what the script adds.
-- An empty window resets now.
local function reply_with(outcome, now, key, live, oldest, active, ...)
  return { outcome, now, key.rate_limit, math.max(0, key.rate_limit - live), oldest and oldest + WINDOW_MS or now,
    key.max_concurrent, active, key.tier, ... }
end

-- The same, with the numbers read from the store.
local function reply(outcome, now, key, window, slots, ...)
  if not key then return { outcome, now, 0, 0, now, 0, 0, "", ... } end
  local live, _, oldest = read_window(window, key.clock)
  return reply_with(outcome, now, key, live, oldest, redis.call("SCARD", slots), ...)
end
