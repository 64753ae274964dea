-- Stops a script that writes before its first command while an operator has frozen the partition, or while its slot
-- migrates key by key: then either the name of the mark is here and the partition is frozen, or the slot's node refuses the
-- command, since the name is not here. `name` is any name of the partition. Decision 0042.
local function require_not_frozen(name)
  if call("EXISTS", string.match(name, "^tg:{p%d+}") .. ":frozen") == 1 then
    error({ err = "FROZEN an operator has frozen the partition" })
  end
end
