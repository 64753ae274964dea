--@include clock date
-- The UTC month and day of a time (ms), such as "2026-10" and "31", and when that month began (ms).
local DAYS = {}
local function day_of(at)
  local number = math.floor(at / DAY_MS)
  local known = DAYS[number]
  if not known then
    local year, month, day, days = date_of(at)
    known = { string.format("%d-%02d", year, month), string.format("%02d", day), (days - day + 1) * DAY_MS }
    DAYS[number] = known
  end
  return known[1], known[2], known[3]
end
