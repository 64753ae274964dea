--@include clock numbers
-- Grants of a UTC month: the hash `sold:<month>` of a partition has, by kind, currency and package, the grants,
-- their credits, and what was paid for them in ten-thousandths of the currency. Only ROLLUP writes it, so a charge costs nothing more.
local SOLD_FIELDS_MAX = 600
-- A sum of more digits stays as it is: the next one might exceed an integer of Redis, and ROLLUP must not fail.
local SUM_DIGITS_MAX = 17

local function add_sum(name, field, number)
  if #(call("HGET", name, field) or "") <= SUM_DIGITS_MAX then call("HINCRBY", name, field, number) end
end

-- Ten-thousandths as a text, since a number of Lua loses digits.
local function units_of(amount)
  local whole, part = string.match(amount, "^(%d+)%.?(%d*)$")
  return whole and string.gsub(whole .. part .. string.rep("0", 4 - #part), "^0+(%d)", "%1")
end

local function note_sale(ledger, entry, kind, kept_ms)
  local month, _, month_at = day_of(tonumber(entry.at))
  local name = string.match(ledger, "^tg:{p%d+}") .. ":sold:" .. month
  -- Without metadata, which comes last and may be nested deeper than cjson reads.
  local text = string.gsub(entry.details or "{}", ',?"metadata":.*$', "}", 1)
  local is_read, details = pcall(cjson.decode, text)
  if not is_read then details = {} end
  local of_currency = kind .. " " .. (details.currency or "-") .. " "
  local group = of_currency .. (details.package or "")
  if call("HEXISTS", name, "grants " .. group) == 0 and call("HLEN", name) >= SOLD_FIELDS_MAX then
    group = of_currency .. "*"
  end
  add_sum(name, "grants " .. group, 1)
  add_sum(name, "credits " .. group, entry.amount)
  if details.amount_paid then add_sum(name, "paid " .. group, units_of(details.amount_paid)) end
  call("PEXPIREAT", name, int(month_at + 31 * DAY_MS + tonumber(kept_ms)))
end
