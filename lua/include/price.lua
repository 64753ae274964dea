--@include numbers
-- The price of a request, and what its ledger entry says of it (JSON; nil for a list price that is always in force). `text` is
-- the price by the list in force; where the configuration has lists that begin at a time, the name of that list follows, and,
-- shortly before and after another one begins, when that is (ms), its price and its name, oldest first. `now` decides which
-- of them is in force: the clock of the store, so all gateways agree. `multiplier` is the account's, a decimal, or nil.
-- A price is rounded up to a whole credit. Decision 0077.
local function price_at(text, multiplier, now)
  local price, list = tonumber(text), nil
  if not price then
    for from, listed, name in string.gmatch("0 " .. text, "(%d+) (%d+) (%S+)") do
      if tonumber(from) <= now then price, list = tonumber(listed), name end
    end
  elseif not multiplier then
    return price
  end
  local words = '{"list_price":' .. int(price)
  if multiplier then
    -- In hundredths: exact, as no decimal is.
    local hundredths = math.floor(multiplier * 100 + 0.5)
    price = math.floor((price * hundredths + 99) / 100)
    words = words .. ',"multiplier":"' .. multiplier .. '"'
  end
  return price, words .. (list and ',"price_list":"' .. list .. '"' or "") .. "}"
end
