--@include words
-- A change of metadata in the audit: the members that differ. Long ones are cut.
local METADATA_BYTES_MAX = 400
local MEMBER_BYTES_MAX = 100

local function string_end(json, from)
  local at = from + 1
  while true do
    at = string.find(json, '["\\]', at)
    if not at or string.byte(json, at) == 34 then return at or #json end
    at = at + 2
  end
end

-- Where the JSON value that begins at `from` in an object ends.
local function value_end(json, from)
  local depth, at = 0, from
  while true do
    at = string.find(json, '["{}%[%],]', at)
    if not at then return #json end
    local char = string.sub(json, at, at)
    if char == '"' then
      at = string_end(json, at)
    elseif char == "{" or char == "[" then
      depth = depth + 1
    elseif depth == 0 then
      return at - 1
    elseif char ~= "," then
      depth = depth - 1
    end
    at = at + 1
  end
end

-- The members of a JSON object: a table of name and value, both JSON, and the names in their order.
local function members_of(json)
  local members, names, at = {}, {}, string.find(json, '"', 1, true)
  while at do
    local name_end = string_end(json, at)
    local last = value_end(json, name_end + 2)
    local name = string.sub(json, at, name_end)
    members[name] = string.sub(json, name_end + 2, last)
    names[#names + 1] = name
    at = string.find(json, '"', last + 1, true)
  end
  return members, names
end

-- Metadata without the members that another one has, too. One that is long becomes a text and is cut; those for which there
-- is no room are counted.
local function changed_members(json, other)
  local members, names = members_of(json)
  local others = members_of(other)
  local kept, bytes, left_out = {}, 0, 0
  for _, name in ipairs(names) do
    local value = members[name]
    if value ~= others[name] then
      if #value > MEMBER_BYTES_MAX then value = cjson.encode(cut_text(value, MEMBER_BYTES_MAX)) end
      bytes = bytes + #name + #value
      if bytes <= METADATA_BYTES_MAX then
        kept[#kept + 1] = name .. ":" .. value
      else
        left_out = left_out + 1
      end
    end
  end
  if left_out > 0 then kept[#kept + 1] = '"…":' .. left_out end
  return "{" .. table.concat(kept, ",") .. "}"
end

-- The fields of one side of a change as the audit keeps them, beside those of the other side.
local function audited(fields, others)
  local kept = {}
  for field, value in pairs(fields) do
    kept[field] = value
  end
  if type(kept.metadata) == "string" then
    local other = others.metadata
    kept.metadata = changed_members(kept.metadata, type(other) == "string" and other or "{}")
  end
  return kept
end
