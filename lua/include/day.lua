--@include clock
--@include date
-- The UTC month and day of a time (ms), such as "2026-10" and "31", and when that month began (ms).
local function day_of(at)
  local year, month, day, days = date_of(at)
  return string.format("%d-%02d", year, month), string.format("%02d", day), (days - day + 1) * DAY_MS
end
