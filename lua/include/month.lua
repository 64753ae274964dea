--@include clock
-- The UTC month of a moment (ms), as months since January 1970. In the calendar of 400 years, with years that begin in March,
-- so that a leap day is the last one of its year.
local function month_of(ms)
  -- 719468 days lie between the first of March of the year 0 and 1970.
  local day = math.floor(ms / DAY_MS) + 719468
  local cycle, of_cycle = math.floor(day / 146097), day % 146097
  local year = math.floor(
    (of_cycle - math.floor(of_cycle / 1460) + math.floor(of_cycle / 36524) - math.floor(of_cycle / 146096)) / 365)
  local of_year = of_cycle - 365 * year - math.floor(year / 4) + math.floor(year / 100)
  return (cycle * 400 + year - 1970) * 12 + math.floor((5 * of_year + 2) / 153) + 2
end
