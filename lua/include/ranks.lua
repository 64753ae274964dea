--@include clock
--@include numbers
-- Sorted lists of a partition's accounts: `by-balance` (by the balance of the ledger) and `spent:<UTC day>` (by what was charged on
-- that day without what was refunded). ROLLUP writes both, so they lag about a second behind and cost a request nothing; a new
-- account is listed when it is made.
local SPENT_KEPT_MS = 33 * DAY_MS
-- An entry's part in its account's spend, by the number of usage in which it counts.
local SPENDING = { charged = 1, refunded = -1 }

-- Balances by account, amounts by day and account, and when the day begins (ms).
local balances, spent, day_starts = {}, {}, {}

-- Notes the balance after an entry. That of an account's last entry counts: the one with the highest `nth`.
local function note_balance(account_id, nth, balance)
  local noted = balances[account_id]
  if not noted or noted.nth < nth then balances[account_id] = { nth = nth, balance = balance } end
end

local function note_money(account_id, day, day_at, what, number)
  local sign = SPENDING[what]
  if not sign then return end
  local of_day = spent[day]
  if not of_day then
    of_day = {}
    spent[day], day_starts[day] = of_day, day_at
  end
  of_day[account_id] = (of_day[account_id] or 0) + sign * number
end

-- Writes what was noted. `name` is any name of the partition.
local function write_ranks(name, now)
  local tag = string.match(name, "^tg:{p%d+}")
  local pairs_of = {}
  for account_id, noted in pairs(balances) do
    pairs_of[#pairs_of + 1] = noted.balance
    pairs_of[#pairs_of + 1] = account_id
  end
  if #pairs_of > 0 then call("ZADD", tag .. ":by-balance", unpack(pairs_of)) end
  for day, of_day in pairs(spent) do
    local ends_at = day_starts[day] + SPENT_KEPT_MS
    if ends_at > now then
      local list = tag .. ":spent:" .. day
      for account_id, amount in pairs(of_day) do call("ZINCRBY", list, int(amount), account_id) end
      call("PEXPIREAT", list, int(ends_at))
    end
  end
end

local function rank_new_account(account, account_id)
  call("ZADD", string.match(account, "^tg:{p%d+}") .. ":by-balance", "NX", 0, account_id)
end
