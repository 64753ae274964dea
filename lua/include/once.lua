--@include numbers
-- How many references of an account have been forgotten: they are in the archive alone. `name` is that of its checkpoint.
local function count_forgotten(name)
  return tonumber(string.match(call("GET", name) or "", "^[^\n]* forgotten (%d+)") or 0)
end

-- The reply of a change that is made once per reference, if it must not be made: another call has made it, the reference stands for
-- something else, or it may be one of more than `looked_up` that have been forgotten. Else nil.
local function refuse_repeat(references, reference, stands_for, checkpoint, looked_up, available)
  local earlier = call("HGET", references, reference)
  if earlier then return { earlier == stands_for and "duplicate" or "mismatch", int(available) } end
  local forgotten = count_forgotten(checkpoint)
  if forgotten > tonumber(looked_up) then return { "forgotten", int(available), int(forgotten) } end
end
