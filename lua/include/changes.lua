-- Changes fields of a record. `changes` is a flat list of field and value; an empty value removes the field. Returns what
-- differs, as it was and as it is: two tables of field and text, cjson.null where it is not set; nil if nothing differs.
local function differing_fields(record, changes)
  local before, after, differs = {}, {}, false
  for at = 1, #changes, 2 do
    local field, value = changes[at], changes[at + 1]
    local earlier = call("HGET", record, field) or ""
    if earlier ~= value then
      before[field] = earlier == "" and cjson.null or earlier
      after[field] = value == "" and cjson.null or value
      differs = true
    end
  end
  if differs then return before, after end
end

local function set_fields(record, fields)
  for field, value in pairs(fields) do
    if value == cjson.null then
      call("HDEL", record, field)
    else
      call("HSET", record, field, value)
    end
  end
end

-- True if a record's revision is one of those that a caller has seen, such as `5` or `5,7`; empty: any.
local function is_seen(revisions, revision)
  return revisions == "" or string.find("," .. revisions .. ",", "," .. (revision or "0") .. ",", 1, true) ~= nil
end

-- Notes for the archive that an account or a key has changed, as `account <id>` or `key <id>`. Nothing is noted in a store
-- without an archive. `name` is any name of the partition. Each change counts, so that ARCHIVED removes no note of a later one.
local function note_changed(name, what)
  local tag = string.match(name, "^tg:{p%d+}")
  if call("EXISTS", tag .. ":archive") == 1 then call("HINCRBY", tag .. ":changed", what, 1) end
end
