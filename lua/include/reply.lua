--@include clock limits numbers spent window
-- The key's tier. Of a key that ends, or has a cap or restrictions, four words follow it: when it ends (ms), the credits of its
-- cap, how many of them it has spent in the month of its clock, and its restrictions; `-` for what it has not.
local function tier_of(key)
  local cap = key.monthly_credits
  if not key.expires_at and not cap and not key.restrictions then return key.tier end
  local spent = cap and key.spent
  if cap and not spent then
    local counted = read_spent(key.name)
    spent = month_of(key.clock) > counted.month and 0 or counted.credits
  end
  return table.concat({ key.tier, key.expires_at or "-", cap or "-", spent and int(spent) or "-",
    key.restrictions or "-" }, " ")
end

-- A reply: outcome, the store's clock, the five numbers of the headers, the key's tier, then what the script adds. If that is
-- nothing it is JSON, which costs Redis a third of what cjson takes for a table.
-- An empty window resets now. Where limits of the account leave less than those of the key, the numbers are the account's.
local function reply_with(outcome, now, key, live, oldest, active, ...)
  local rate_limit, max_concurrent, shared = key.rate_limit, key.max_concurrent, key.shared
  if shared then
    if shared.rate_limit - shared.live < rate_limit - live then
      rate_limit, live, oldest = shared.rate_limit, shared.live, shared.oldest
    end
    if shared.max_concurrent - shared.active < max_concurrent - active then
      max_concurrent, active = shared.max_concurrent, shared.active
    end
  end
  local remaining, reset = math.max(0, rate_limit - live), oldest and oldest + WINDOW_MS or now
  if ... ~= nil then
    return { outcome, int(now), int(rate_limit), int(remaining), int(reset), int(max_concurrent), int(active), tier_of(key), ... }
  end
  local has_terms = key.expires_at or key.monthly_credits or key.restrictions
  return '["' .. outcome .. '",' .. int(now) .. "," .. int(rate_limit) .. "," .. int(remaining) .. "," .. int(reset) .. ","
    .. int(max_concurrent) .. "," .. int(active) .. "," .. (has_terms and cjson.encode(tier_of(key)) or key.tier_json) .. "]"
end

-- A reply whose numbers of the headers are read from the store here.
local function reply(outcome, now, key, window, slots, ...)
  -- Texts: to write a number costs cjson more than all else of this reply.
  if not key then return { outcome, int(now), "0", "0", int(now), "0", "0", "", ... } end
  local live, _, oldest = read_window(window, key.clock)
  if key.shared then read_shared_use(key.shared) end
  return reply_with(outcome, now, key, live, oldest, call("SCARD", slots), ...)
end
