-- `..` and JSON print 14 digits; amounts and stamps have up to 16. Amounts are answered in this form too: ioredis loses
-- the last bit of integers near 2^53. Texts are kept for the call: the items of a batch have most numbers in common, and to make
-- one takes Redis 2,000 instructions.
local TEXTS = {}
local function int(n)
  local text = TEXTS[n]
  if not text then
    text = string.format("%d", n)
    TEXTS[n] = text
  end
  return text
end
