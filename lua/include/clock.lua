-- The store's clock in Unix ms, read once per call. `given` is the first ARGV: empty but in tests.
local DAY_MS = 86400000
local NOW
local function store_now(given)
  if NOW then return NOW end
  if given ~= "" then
    NOW = tonumber(given)
  else
    local t = call("TIME")
    NOW = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  return NOW
end

-- The UTC date of a time (ms): year, month, day of the month, days since 1970. By days since 0000-03-01, a calendar whose years
-- end in February: https://howardhinnant.github.io/date_algorithms.html#civil_from_days
local function date_of(at)
  local days = math.floor(at / DAY_MS)
  local since = days + 719468
  local era, of_era = math.floor(since / 146097), since % 146097
  local years = math.floor(
    (of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) - math.floor(of_era / 146096)) / 365
  )
  local of_year = of_era - (365 * years + math.floor(years / 4) - math.floor(years / 100))
  local shifted = math.floor((5 * of_year + 2) / 153)
  local month = shifted < 10 and shifted + 3 or shifted - 9
  local day = of_year - math.floor((153 * shifted + 2) / 5) + 1
  return years + era * 400 + (month <= 2 and 1 or 0), month, day, days
end

-- The UTC month of a time (ms), as months since January 1970.
local function month_of(at)
  local year, month = date_of(at)
  return (year - 1970) * 12 + month - 1
end

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
