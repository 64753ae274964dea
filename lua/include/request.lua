--@include numbers
-- The record of a request is one text: its state and what ADMIT fixes, with a space between, then ` name=value` for each further
-- field. As a hash it costs Redis three times as much (decision 0004). src/records/records.ts reads and writes it, too;
-- src/records/records.ts says what the parts and fields are. What is not known is empty.
-- `rest` is what follows the retention (ms). One `..`: Redis hashes each text that is made, byte by byte.
local function request_text(state, account_id, key_id, endpoint, price, retention_ms, rest)
  return state .. " " .. account_id .. " " .. key_id .. " " .. endpoint .. " " .. price .. " " .. retention_ms .. " " .. rest
end

-- The beginning of all names of a partition, by the name of a key's record.
local function prefix_of(key_name, key_id)
  return string.sub(key_name, 1, -5 - #key_id)
end

-- `details` and `fingerprint` may hold spaces, at which a field ends.
local function encoded(value)
  return (string.gsub(value, "[%s%%]", function(char) return string.format("%%%02X", string.byte(char)) end))
end

local function decoded(value)
  return (string.gsub(value, "%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

-- The rest of a record behind its subject if it is held and has this subject, else nil. Comparing texts costs Redis a tenth of
-- what a pattern does.
local function read_held(text, subject)
  local is_held = text and string.sub(text, 1, 4) == "held" and string.find(text, subject, 5, true) == 5
  return is_held and string.sub(text, 5 + #subject) or nil
end

local function read_state(name)
  local text = call("GET", name)
  return text and string.match(text, "^%S+")
end

-- The price's details in the charge (JSON); nil for none.
local function read_details(text)
  local at = string.find(text, " details=", 1, true)
  return at and decoded(string.match(text, "^%S*", at + 9))
end

-- A record as a table of its parts and fields, nil for those that are empty or not there, and `text`. Empty without a record.
-- `details` and `fingerprint` are as stored.
local function read_request(name)
  local text = call("GET", name)
  if not text then return {} end
  local state, account_id, key_id, endpoint, price, retention_ms, admitted_at, due_at =
    string.match(text, "^([^ ]+) ([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*)")
  -- A table that grows part by part is copied four times.
  local record = { text = text, state = state, account_id = account_id, key_id = key_id, endpoint = endpoint, price = price,
    retention_ms = retention_ms, admitted_at = admitted_at, due_at = due_at }
  for part, value in pairs(record) do
    if value == "" then record[part] = nil end
  end
  for field, value in string.gmatch(text, " ([%a_]+)=([^ ]+)") do record[field] = value end
  return record
end

-- A record's text in another state, with these fields: `...` are names and values; a value of false removes the field.
local function changed_request(text, state, ...)
  text = state .. string.sub(text, string.find(text, " ", 1, true), -1)
  for at = 1, select("#", ...), 2 do
    local field, value = select(at, ...)
    text = string.gsub(text, " " .. field .. "=%S*", "", 1)
    if value then text = text .. " " .. field .. "=" .. value end
  end
  return text
end

-- How long (ms) the record of a request is kept that was certainly not made: far beyond any `not_after` of its ADMIT.
local REFUSED_KEPT_MS = 600000

-- The score in `done` of a request that ends now: the time from which its record may be deleted. One that was restored from the archive has
-- no retention (false): COLLECT finds it at once and postpones it by its caller's.
local function forget_at(now, retention_ms)
  return int(now + tonumber(retention_ms or 0))
end
