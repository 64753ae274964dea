--@include numbers
-- An account's checkpoint: what its entries add up to that have left the ledger, and the latest ten of them for GET /credits.
-- A text: its first line has the numbers by name, each further one an entry, most recent first. src/store/checkpoints.ts
-- says what they are, and reads them.
local TAIL_LINES_MAX = 10
local CHECKPOINT_NUMBERS = { "balance", "entries", "recharged", "consumed", "refunded", "references", "referenced",
  "forgotten", "forgotten_credits" }

-- The checkpoint of this name; all zero for an account whose entries are all in the ledger.
local function read_checkpoint(name)
  local first, tail = string.match(redis.call("GET", name) or "", "^([^\n]*)\n?(.*)$")
  local checkpoint = { entry = "", lines = {} }
  for _, field in ipairs(CHECKPOINT_NUMBERS) do checkpoint[field] = 0 end
  for field, value in string.gmatch(first, "(%S+) (%S+)") do
    checkpoint[field] = field == "entry" and value or tonumber(value)
  end
  for line in string.gmatch(tail, "[^\n]+") do checkpoint.lines[#checkpoint.lines + 1] = line end
  return checkpoint
end

-- A line about an entry: its id, when it was made (ms), type, amount, balance after it, then the endpoint of a charge, or
-- reason and task id of what is no charge, if there are any.
local function tail_line(id, entry)
  local what = entry.type == "consume" and entry.endpoint or entry.reason .. " " .. entry.task_id
  local line = { id, entry.at, entry.type, entry.amount, entry.balance_after, what }
  return (string.gsub(table.concat(line, " "), "%s+$", ""))
end

-- Adds an entry that leaves the ledger. False if it is not the next one of the account.
local function add_to_checkpoint(checkpoint, id, entry)
  local amount, balance = tonumber(entry.amount), tonumber(entry.balance_after)
  if entry.previous ~= checkpoint.entry or balance ~= checkpoint.balance + amount then return false end
  checkpoint.entry, checkpoint.balance, checkpoint.entries = id, balance, checkpoint.entries + 1
  if entry.type == "consume" then
    checkpoint.consumed = checkpoint.consumed - amount
  elseif entry.reason == "refund" then
    checkpoint.refunded = checkpoint.refunded + amount
  else
    checkpoint.recharged = checkpoint.recharged + amount
    if entry.reference then
      checkpoint.references = checkpoint.references + 1
      checkpoint.referenced = checkpoint.referenced + amount
    end
  end
  table.insert(checkpoint.lines, 1, tail_line(id, entry))
  checkpoint.lines[TAIL_LINES_MAX + 1] = nil
  return true
end

local function write_checkpoint(name, checkpoint)
  local words = { "entry " .. checkpoint.entry }
  for _, field in ipairs(CHECKPOINT_NUMBERS) do words[#words + 1] = field .. " " .. int(checkpoint[field]) end
  redis.call("SET", name, table.concat(words, " ") .. "\n" .. table.concat(checkpoint.lines, "\n"))
end
