-- Notes for the archive that an account or a key has changed, as `account <id>` or `key <id>`. Nothing is noted in a store
-- without an archive. `name` is any name of the partition. Each change counts, so that ARCHIVED removes no note of a later one.
local function note_changed(name, what)
  local tag = string.match(name, "^tg:{p%d+}")
  if call("EXISTS", tag .. ":archive") == 1 then call("HINCRBY", tag .. ":changed", what, 1) end
end
