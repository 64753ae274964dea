-- The store's clock in Unix ms, read once per call. `given` is the first ARGV: empty but in tests.
local DAY_MS = 86400000
local NOW
local function store_now(given)
  if NOW then return NOW end
  if given ~= "" then
    NOW = tonumber(given)
  else
    local t = call("TIME")
    NOW = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  return NOW
end
