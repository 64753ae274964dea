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
