-- `..` and JSON print 14 digits; amounts and stamps have up to 16. Amounts are answered in this form too: ioredis loses
-- the last bit of integers near 2^53.
local function int(n)
  return string.format("%d", n)
end
