local RESTRICTION = { suspended = 1, closed = 2 }

-- True if an account with one status may do more with another; an unset status is active.
local function lifts(before, after)
  return (RESTRICTION[after] or 0) < (RESTRICTION[before] or 0)
end
