--@include members
-- An index of metadata, by which operators find accounts: `metadata` of a partition (zset: digest of a name and its value, a space,
-- account id; all scores 0). Texts, numbers and booleans have a place in it; names with other characters than these have none, nor
-- texts with half of a surrogate pair, which no query names.
-- src/records/words.ts makes the same digests.
local NAME = '^"[%w_.-]+"$'

-- Texts, numbers and booleans of metadata, in its order. Of any other type than a text it has none.
local function metadata_values(metadata)
  local values = {}
  if type(metadata) ~= "string" then return values end
  local members, names = members_of(metadata)
  for _, name in ipairs(names) do
    local value = members[name]
    local first = string.sub(value, 1, 1)
    if not string.find("{[n", first, 1, true) then
      local is_read, text = true, value
      if first == '"' then is_read, text = pcall(function() return cjson.decode("[" .. value .. "]")[1] end) end
      if is_read then values[#values + 1] = { name = name, text = text, is_flag = first == "t" or first == "f" } end
    end
  end
  return values
end

local function metadata_places(metadata, account_id)
  local places = {}
  for _, value in ipairs(metadata_values(metadata)) do
    if string.find(value.name, NAME) then
      places[#places + 1] = string.sub(redis.sha1hex(value.name .. value.text), 1, 8) .. " " .. account_id
    end
  end
  return places
end

-- `before` and `after` are metadata as JSON; of any other type for none.
local function index_metadata(account, account_id, before, after)
  local list = string.match(account, "^tg:{p%d+}") .. ":metadata"
  local former, listed = metadata_places(before, account_id), {}
  for _, place in ipairs(metadata_places(after, account_id)) do
    listed[#listed + 1] = 0
    listed[#listed + 1] = place
  end
  if #former > 0 then call("ZREM", list, unpack(former)) end
  if #listed > 0 then call("ZADD", list, unpack(listed)) end
end
