--@include numbers
-- The record of a request is one text: its state and what ADMIT fixes, with a space between, then ` name=value` for each further
-- field. As a hash it costs Redis three times as much (decision 0004). src/records/requests.ts reads and writes it, too;
-- src/records/records.ts says what the parts and fields are. What is not known is empty.
-- `subject` is what a gateway knows before ADMIT: account id, key id, endpoint, price, retention (ms).
local function request_text(state, subject, admitted_at, due_at)
  return state .. " " .. subject .. " " .. admitted_at .. " " .. due_at
end

local function subject_text(account_id, key_id, endpoint, price, retention_ms)
  return account_id .. " " .. key_id .. " " .. endpoint .. " " .. price .. " " .. retention_ms
end

-- A subject with another price, which is that of the account or of the price list in force.
local function with_price(subject, price)
  return (string.gsub(subject, "^(%S* %S* %S*) %S*", "%1 " .. int(price)))
end

-- `details` and `fingerprint` may hold spaces, at which a field ends.
local function encoded(value)
  return (string.gsub(value, "[%s%%]", function(char) return string.format("%%%02X", string.byte(char)) end))
end

local function decoded(value)
  return (string.gsub(value, "%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

-- When the request was admitted (ms, a text), if this record is held and has this subject; else nil. Comparing texts costs Redis a
-- tenth of what a pattern does.
local function read_held(text, subject)
  local start = "held " .. subject .. " "
  if not text or string.find(text, start, 1, true) ~= 1 then return nil end
  return string.sub(text, #start + 1, string.find(text, " ", #start + 1, true) - 1)
end

local NO_SUBJECT = "    "

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

-- The text of a record whose request has got a task. `fixed` are further fields, as the gateway writes them.
local function bound_request(text, task_id, bound_at, fixed)
  return "bound" .. string.sub(text, string.find(text, " ", 1, true), -1) .. " task_id=" .. task_id .. " bound_at=" .. bound_at
    .. " " .. fixed
end
