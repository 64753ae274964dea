local RESTRICTION = { suspended = 1, closed = 2 }

-- Whether an account with one status may do more with another; what is not set is active.
local function lifts(before, after)
  return (RESTRICTION[after] or 0) < (RESTRICTION[before] or 0)
end
