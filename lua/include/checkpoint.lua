--@include entry numbers
-- An account's checkpoint: what its entries add up to that have left the ledger, and the latest ten of them for GET /credits.
-- A text: its first line has the numbers by name that are not zero, each further one an entry, most recent first.
-- src/records/checkpoints.ts says what they are, and reads them.
local TAIL_LINES_MAX = 10
local CHECKPOINT_NUMBERS = { "balance", "entries", "recharged", "consumed", "refunded", "references", "referenced",
  "forgotten", "forgotten_credits", "adjusted", "reversed" }

-- The checkpoint of this name; all zero for an account whose entries are all in the ledger.
local function read_checkpoint(name)
  local first, tail = string.match(call("GET", name) or "", "^([^\n]*)\n?(.*)$")
  local checkpoint = { entry = "", lines = {} }
  for _, field in ipairs(CHECKPOINT_NUMBERS) do checkpoint[field] = 0 end
  for field, value in string.gmatch(first, "(%S+) (%S+)") do
    checkpoint[field] = field == "entry" and value or tonumber(value)
  end
  local above
  for line in string.gmatch(tail, "[^\n]+") do
    local head, what = string.match(line, "^(%S+ %S+ %S+) ?(.*)$")
    if what == '"' then what = above end
    checkpoint.lines[#checkpoint.lines + 1] = { head = head, what = what }
    above = what
  end
  return checkpoint
end

-- A line about an entry: its id, without `-0` and with when it was made (ms) behind `@` if that is not the id's time; the
-- first letter of its type; the amount; then what it was for.
local function checkpoint_line(id, at, kind, amount, what)
  local stamp = at == string.match(id, "^%d+") and "" or "@" .. at
  local head = string.gsub(id, "%-0$", "") .. stamp .. " " .. string.sub(kind, 1, 1) .. " " .. amount
  return { head = head, what = (string.gsub(what, "%s+$", "")) }
end

-- The purpose of an entry: the endpoint of a charge, reason and task id of a refund, `=` and the reason of an adjustment, `-` and
-- the reason of a reversal, or `+` and the kind of a grant that is no purchase.
local function tail_line(id, entry)
  local kind, what = kind_of(entry), ""
  if kind == "charge" then what = entry.endpoint end
  if kind == "refund" then what = entry.reason .. " " .. entry.task_id end
  if kind == "adjustment" then what = "= " .. entry.reason end
  if kind == "reversal" then what = "- " .. entry.reason end
  if kind == "trial" or kind == "goodwill" then what = "+ " .. kind end
  return checkpoint_line(id, entry.at, entry.type, entry.amount, what)
end

-- Adds an entry that leaves the ledger. False if it is not the next one of the account.
local function add_to_checkpoint(checkpoint, id, entry)
  local amount, balance = tonumber(entry.amount), tonumber(entry.balance_after)
  if entry.previous ~= checkpoint.entry or balance ~= checkpoint.balance + amount then return false end
  checkpoint.entry, checkpoint.balance, checkpoint.entries = id, balance, checkpoint.entries + 1
  local kind = kind_of(entry)
  if kind == "charge" then
    checkpoint.consumed = checkpoint.consumed - amount
  elseif kind == "refund" then
    checkpoint.refunded = checkpoint.refunded + amount
  elseif kind == "adjustment" then
    checkpoint.adjusted = checkpoint.adjusted + amount
  elseif kind == "reversal" then
    checkpoint.reversed = checkpoint.reversed - amount
  else
    checkpoint.recharged = checkpoint.recharged + amount
  end
  if entry.reference then
    checkpoint.references = checkpoint.references + 1
    if kind == "purchase" then checkpoint.referenced = checkpoint.referenced + amount end
  end
  table.insert(checkpoint.lines, 1, tail_line(id, entry))
  checkpoint.lines[TAIL_LINES_MAX + 1] = nil
  return true
end

local function write_checkpoint(name, checkpoint)
  local words = { "entry " .. checkpoint.entry }
  for _, field in ipairs(CHECKPOINT_NUMBERS) do
    if checkpoint[field] ~= 0 then words[#words + 1] = field .. " " .. int(checkpoint[field]) end
  end
  local lines, above = { table.concat(words, " ") }, nil
  for _, line in ipairs(checkpoint.lines) do
    local what = line.what == above and '"' or line.what
    lines[#lines + 1] = line.head .. (line.what == "" and "" or " " .. what)
    above = line.what
  end
  call("SET", name, table.concat(lines, "\n"))
end

-- True if an id of a stream comes after another one.
local function is_later(id, other)
  local ms, sequence = string.match(id, "^(%d+)-(%d+)$")
  local other_ms, other_sequence = string.match(other, "^(%d+)-(%d+)$")
  ms, other_ms = tonumber(ms), tonumber(other_ms)
  return ms > other_ms or (ms == other_ms and tonumber(sequence) > tonumber(other_sequence))
end

-- The checkpoints of those accounts whose entry before one of these has left the ledger, as a flat list of account id and
-- checkpoint. `cut` is the last entry that has left; `prefix` begins the names of checkpoints.
local function checkpoints_before(entries, cut, prefix)
  local checkpoints = {}
  if cut == "" then return checkpoints end
  for _, entry in ipairs(entries) do
    local fields = read_entry(entry[2])
    local account_id, previous = fields.account_id or "", fields.previous or ""
    if previous ~= "" and not is_later(previous, cut) then
      checkpoints[#checkpoints + 1] = account_id
      checkpoints[#checkpoints + 1] = call("GET", prefix .. account_id) or ""
    end
  end
  return checkpoints
end
