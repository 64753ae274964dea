--@include clock numbers
-- Sorted lists of a partition's accounts: `by-balance` (by the balance of the ledger), `spent:<UTC day>` (by what was charged on
-- that day without what was refunded), `spent-week` (the same of seven days, today included) and `days-left` (by the thousandths
-- of a day that the balance lasts at that pace, for accounts that spent any). ROLLUP writes them, so they lag about a second
-- behind and cost a request nothing; a new account is listed when it is made.
local SPENT_KEPT_MS = 33 * DAY_MS
local WEEK_DAYS = 7
local DAYS_LEFT_MAX = 1e15
-- Accounts whose week is summed up again in one call.
local LEAVING_MAX = 100
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

-- The UTC day (since 1970) with which the week of seven days begins.
local function week_begins(now)
  return math.floor(now / DAY_MS) - WEEK_DAYS + 1
end

local function rank_days_left(tag, account_id, balance, week)
  if week > 0 then
    local days = math.min(math.floor(balance * WEEK_DAYS * 1000 / week), DAYS_LEFT_MAX)
    call("ZADD", tag .. ":days-left", int(days), account_id)
  else
    call("ZREM", tag .. ":days-left", account_id)
  end
end

-- Writes what was noted. `name` is any name of the partition, `first` the first day that may still be in the sums of the week.
local function write_ranks(name, now, first)
  local tag = string.match(name, "^tg:{p%d+}")
  local week_at = math.max(first, week_begins(now)) * DAY_MS
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
    if day_starts[day] >= week_at then
      for account_id, amount in pairs(of_day) do call("ZINCRBY", tag .. ":spent-week", int(amount), account_id) end
    end
  end
  for account_id, noted in pairs(balances) do
    local week = call("ZSCORE", tag .. ":spent-week", account_id)
    if week then rank_days_left(tag, account_id, tonumber(noted.balance), tonumber(week)) end
  end
end

-- Sums up the week of the next accounts that spent on a day that has left it. `first` is the first day that may still be in the
-- sums, `at` how many of its accounts were done. Returns the place to go on at, and whether there is more.
local function leave_week(name, now, first, at)
  local begins = week_begins(now)
  if first >= begins then return first, 0, false end
  local tag = string.match(name, "^tg:{p%d+}")
  local function spent_on(day)
    local month, date = day_of(day * DAY_MS)
    return tag .. ":spent:" .. month .. "-" .. date
  end
  first = math.max(first, begins - SPENT_KEPT_MS / DAY_MS)
  local leaving = call("ZRANGE", spent_on(first), int(at), int(at + LEAVING_MAX - 1))
  if #leaving > 0 then
    local weeks = {}
    for day = begins, begins + WEEK_DAYS - 1 do
      for nth, spent in ipairs(call("ZMSCORE", spent_on(day), unpack(leaving))) do
        weeks[nth] = (weeks[nth] or 0) + (tonumber(spent) or 0)
      end
    end
    local known = call("ZMSCORE", tag .. ":by-balance", unpack(leaving))
    for nth, account_id in ipairs(leaving) do
      call("ZADD", tag .. ":spent-week", int(weeks[nth]), account_id)
      rank_days_left(tag, account_id, tonumber(known[nth]) or 0, weeks[nth])
    end
  end
  if #leaving == LEAVING_MAX then return first, at + LEAVING_MAX, true end
  return first + 1, 0, first + 1 < begins
end

local function rank_new_account(account, account_id)
  call("ZADD", string.match(account, "^tg:{p%d+}") .. ":by-balance", "NX", 0, account_id)
end
