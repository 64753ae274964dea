-- How many references of an account have been forgotten: they are in the archive alone. `name` is that of its checkpoint.
local function count_forgotten(name)
  return tonumber(string.match(call("GET", name) or "", "^[^\n]* forgotten (%d+)") or 0)
end
