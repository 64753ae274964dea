-- A ledger entry as a table of its fields. What every entry has is one text in the field `entry`, with spaces between: a field
-- of its own for each costs a charge more than all else that BIND does. `ledgerEntry` in src/records/ledger-entries.ts reads
-- it, too, and ROLLUP its beginning. `fields` is the flat list of XRANGE.
local function read_entry(fields)
  local entry = { reason = "" }
  for at = 1, #fields, 2 do entry[fields[at]] = fields[at + 1] end
  if entry.entry then
    entry.type, entry.account_id, entry.key_id, entry.endpoint, entry.amount, entry.at, entry.balance_after, entry.previous,
      entry.request_id, entry.task_id =
      string.match(entry.entry, "^([^ ]+) ([^ ]+) ([^ ]*) ([^ ]*) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]*) ([^ ]*) ([^ ]*)$")
  end
  return entry
end

-- The accounting kind of a ledger entry; `kindOf` in src/records/ledger-entries.ts and the view `tollgate.ledger_entries` of the
-- archive say the same. `entry` is a table of its fields.
local function kind_of(entry)
  -- Said by entries of kinds that nothing else tells apart: trial, goodwill, reversal.
  if entry.kind then return entry.kind end
  local is_consume = entry.type == "consume"
  if (entry.request_id or "") ~= "" or entry.task_id ~= "" then return is_consume and "charge" or "refund" end
  local is_purchase = not is_consume and entry.reason == "" and tonumber(entry.amount) >= 0
  return is_purchase and "purchase" or "adjustment"
end
