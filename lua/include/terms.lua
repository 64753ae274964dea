-- What operators fix of a key is also one text in the field `terms` of its record, which is the same for many keys, so that the items
-- of a call read it once (decision 0071). The first ADMIT after a change makes it; whoever changes one of these fields removes it.
local TERM_FIELDS = { "tier", "rate_limit", "max_concurrent", "daily_limit", "monthly_credits", "expires_at", "revoked_at",
  "restrictions", "spends_in" }

-- The text by the fields of a key's record; nil without a record. `-` is what is not set.
local function terms_text(name)
  local f = call("HMGET", name, "account_id", unpack(TERM_FIELDS))
  if not f[1] then return nil end
  for at = 2, #f do f[at] = f[at] or "-" end
  return table.concat(f, " ", 2)
end

-- Its values by field; false for what is not set.
local function read_terms(text)
  local terms, at = {}, 0
  for word in string.gmatch(text, "%S+") do
    at = at + 1
    terms[TERM_FIELDS[at]] = word ~= "-" and word
  end
  return terms
end

local function forget_terms(name)
  call("HDEL", name, "terms")
end
