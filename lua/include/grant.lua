--@include audit
-- The meaning of a grant's reference: its credits, behind its kind if it is no purchase. `standsFor` in
-- src/records/ledger-entries.ts says the same. `kind` is trial or goodwill, or empty for a purchase.
local function grant_text(kind, credits)
  return kind == "" and credits or kind .. " " .. credits
end

-- The further fields of its ledger entry. `details` is JSON, or empty.
local function grant_fields(kind, details, reference, actor)
  local fields = { "reference", reference, "by", by_of(actor) }
  for _, pair in ipairs({ { "kind", kind }, { "details", details } }) do
    if pair[2] ~= "" then
      fields[#fields + 1] = pair[1]
      fields[#fields + 1] = pair[2]
    end
  end
  return fields
end
