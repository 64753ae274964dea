--@include clock limits numbers
-- A key's spend in its current month: credits held and consumed by requests that were admitted in that month,
-- without what was given back. ADMIT adds to it and moves it on to the next month; here it changes after that. A key that
-- replaces another (`spends_in`) counts in the record of the first of them, so that a cap holds for both together.

-- Reads it from the key's record of this name; nil without a record. Before the first write: it fails where the name has moved.
local function read_spent(name)
  local f = call("HMGET", name, "account_id", "counters", "spends_in", "month")
  if not f[1] then return nil end
  local spending, month, counters = name, f[4], f[2]
  if f[3] then
    spending = string.match(name, "^tg:{p%d+}:key:") .. f[3]
    month, counters = unpack(call("HMGET", spending, "month", "counters"))
  end
  local _, credits = read_counters(counters)
  return { key = name, spending = spending, month = tonumber(month or -1), credits = tonumber(credits),
    clock = tonumber((read_counters(f[2]))) }
end

-- Adds credits of a request that was admitted at this time (ms); less than 0 gives them back. Only what was admitted in the
-- month of the record counts. A charge of a later month is one whose admission the store has lost: the record and the key's clock
-- move on to it, unless it is ahead of the store's clock, which has been put back since.
local function add_spent(spent, admitted_at, credits)
  if not spent or not admitted_at then return end
  admitted_at = tonumber(admitted_at)
  local month = month_of(admitted_at)
  if month < spent.month then return end
  if month == spent.month then
    change_counters(spent.spending, SPENT_WORD, int(math.max(0, spent.credits + credits)))
  elseif credits > 0 and month <= month_of(math.max(spent.clock, store_now(""))) then
    call("HSET", spent.spending, "month", int(month))
    change_counters(spent.spending, SPENT_WORD, int(credits))
    change_counters(spent.key, CLOCK_WORD, int(math.max(spent.clock, admitted_at)))
  end
end
