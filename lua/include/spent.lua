--@include month
--@include numbers
-- What a key has spent in the month that it is in: credits held and consumed by requests that were admitted in that month,
-- without what was given back. ADMIT adds to it and moves it on to the next month; here it changes after that.

-- Reads it from the key's record of this name; nil without a record. Before the first write: it fails where the name has moved.
local function read_spent(name)
  local f = redis.call("HMGET", name, "account_id", "month", "spent", "clock_ms")
  return f[1] and { name = name, month = tonumber(f[2] or -1), credits = tonumber(f[3] or 0),
    clock = tonumber(f[4] or 0) }
end

-- Adds credits of a request that was admitted at this time (ms); less than 0 gives them back. What was admitted in an earlier
-- month changes nothing. In a later one, the store has lost the admission, and the key's clock moves on to it. An earlier release
-- counted nothing, so nothing of it is given back before the key has a month.
local function add_spent(spent, admitted_at, credits)
  if not spent or not admitted_at then return end
  local month = month_of(tonumber(admitted_at))
  if month < spent.month or (spent.month < 0 and credits < 0) then return end
  local sum = math.max(0, (month == spent.month and spent.credits or 0) + credits)
  redis.call("HSET", spent.name, "month", int(month), "spent", int(sum))
  if month > spent.month then
    redis.call("HSET", spent.name, "clock_ms", int(math.max(spent.clock, tonumber(admitted_at))))
  end
end
