-- A key's window: stamps in ms, newest first.
local WINDOW_MS = 60000

local function stamp_at(window, index)
  return tonumber(redis.call("LINDEX", window, index))
end

-- The entries of the window (newest first) in the last 60 s before `clock`: how many, how many in all, and the oldest of
-- them (nil: none). Reads only: trimming without storing the clock would drop entries that count again after the clock has
-- stepped back.
local function read_window(window, clock)
  local length = redis.call("LLEN", window)
  if length == 0 then return 0, 0 end
  local since = clock - WINDOW_MS
  local oldest = stamp_at(window, -1)
  if oldest > since then return length, length, oldest end
  -- How many have expired: mostly a few, so the search starts at the oldest and doubles its steps.
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

-- How long (ms) until a full window has room for one more. After its limit was lowered it may have more entries than that
-- allows: then until enough of them have left.
local function wait_for(window, limit, now)
  return limit == 0 and WINDOW_MS or stamp_at(window, limit - 1) + WINDOW_MS - now
end
