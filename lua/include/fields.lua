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
