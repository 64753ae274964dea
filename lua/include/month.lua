--@include date
-- The UTC month of a time (ms), as months since January 1970.
local function month_of(at)
  local year, month = date_of(at)
  return (year - 1970) * 12 + month - 1
end
