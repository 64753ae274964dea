--@include numbers
-- The money of an account: one text in the field `money` of its record (decision 0004). Its words: balance, credits held, credits used,
-- requests, the id of its latest ledger entry (`-` for none), and `+` if the record has one of the fields below, which most accounts
-- do not have. src/records/packed-fields.ts reads and writes it, too.
local NO_MONEY = "0 0 0 0 -"
local EXTRA_FIELDS = { "status", "limited", "blocked_until", "price_multiplier", "alerts", "webhooks" }

-- The words as texts; the last is empty or `+`.
local function money_words(text)
  return string.match(text or NO_MONEY, "^([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ?([^ ]*)")
end

local function write_money(account, balance, held, used, requests, last, extras)
  local text = balance .. " " .. held .. " " .. used .. " " .. requests .. " " .. last
  call("HSET", account, "money", extras == "" and text or text .. " " .. extras)
end

-- True if the record may have one of the fields.
local function has_extras(account)
  return string.sub(call("HGET", account, "money") or "", -1) == "+"
end

-- As numbers: `balance`, `used` and `available`, which is what can be spent. Nil without an account.
local function read_money(account)
  local text = call("HGET", account, "money")
  if not text then return nil end
  local balance, held, used = money_words(text)
  return { balance = tonumber(balance), used = tonumber(used), available = balance - held }
end

-- Adds to what is held, and to how many requests there were.
local function add_to_money(account, credits, count)
  local balance, held, used, requests, last, extras = money_words(call("HGET", account, "money"))
  write_money(account, balance, int(held + credits), used, int(requests + count), last, extras)
end

-- Notes whether the record has one of the fields, after one of them has changed.
local function mark_extras(account)
  local found, mark = call("HMGET", account, unpack(EXTRA_FIELDS)), ""
  for at = 1, #EXTRA_FIELDS do
    if found[at] then mark = "+" end
  end
  local balance, held, used, requests, last, extras = money_words(call("HGET", account, "money"))
  if extras ~= mark then write_money(account, balance, held, used, requests, last, mark) end
end
