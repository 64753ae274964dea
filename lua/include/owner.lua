-- The request that owns a task id, by the text of its record or of its claim.
local function read_owner(text)
  return string.match(text, "^!?(%S+)")
end
