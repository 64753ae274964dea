--@include clock
--@include numbers
-- Sorted lists of a partition's accounts: `by-balance` (by the balance of the ledger) and `spent:<UTC day>` (by what was charged on
-- that day without what was refunded). ROLLUP writes both, so they lag about a second behind and cost a request nothing; a new
-- account is listed when it is made.
local SPENT_KEPT_MS = 33 * DAY_MS
-- What an entry adds to what its account has spent, by the number of usage in which it counts.
local SPENDING = { charged = 1, refunded = -1, purchased = 0, trials = 0, goodwill = 0, reversed = 0, adjusted = 0 }

-- Accounts of the entries that are noted; amounts by day and account, and when the day begins (ms).
local moved, spent, day_starts = {}, {}, {}

local function note_money(account_id, day, day_at, what, number)
  local sign = SPENDING[what]
  if not sign then return end
  moved[account_id] = true
  if sign == 0 then return end
  local of_day = spent[day] or {}
  spent[day], day_starts[day] = of_day, day_at
  of_day[account_id] = (of_day[account_id] or 0) + sign * number
end

-- Writes what was noted. `name` is any name of the partition.
local function write_ranks(name, now)
  local tag = string.match(name, "^tg:{p%d+}")
  for account_id in pairs(moved) do
    local balance = call("HGET", tag .. ":account:" .. account_id, "balance")
    if balance then call("ZADD", tag .. ":by-balance", balance, account_id) end
  end
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
