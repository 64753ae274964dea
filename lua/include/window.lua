-- A key's window: stamps in ms, newest first.
local WINDOW_MS = 60000

local function stamp_at(window, index)
  return call("LINDEX", window, index) + 0
end

-- The entries of the window (newest first) in the last 60 s before `clock`: how many, how many in all, and the oldest of
-- them (nil: none). Reads only: trimming without storing the clock would drop entries that count again after the clock has
-- stepped back.
local function read_window(window, clock)
  local length = call("LLEN", window)
  if length == 0 then return 0, 0 end
  local since = clock - WINDOW_MS
  -- A text: Redis writes a number out with 17 digits first.
  local oldest = stamp_at(window, "-1")
  if oldest > since then return length, length, oldest end
  -- How many have expired: mostly a few, so the search starts at the oldest and doubles its steps. `oldest` becomes the
  -- stamp before the last place that was found to be live.
  local gone, step, most = 1, 2, length
  oldest = nil
  while step <= length do
    local stamp = stamp_at(window, step == 2 and "-2" or -step)
    if stamp > since then
      most, oldest = step - 1, stamp
      break
    end
    gone = step
    step = step * 2
  end
  while gone < most do
    local middle = math.ceil((gone + most) / 2)
    local stamp = stamp_at(window, -middle)
    if stamp > since then most, oldest = middle - 1, stamp else gone = middle end
  end
  return length - gone, length, oldest
end

-- Adds a stamp, and drops those that have expired: all but `live` of `length`.
local function add_to_window(window, stamp, live, length)
  call("LPUSH", window, stamp)
  if live == length - 1 then
    call("RPOP", window)
  elseif live < length then
    call("LTRIM", window, "0", live)
  end
end

-- How long (ms) until a full window has room for one more. After its limit was lowered it may have more entries than that
-- allows: then until enough of them have left.
local function wait_for(window, limit, now)
  return limit == 0 and WINDOW_MS or stamp_at(window, limit - 1) + WINDOW_MS - now
end
