--@include entry
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
