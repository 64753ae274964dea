#!lua flags=allow-oom
-- ROLLUP: adds the next entries of a partition's ledger, and the next noted ends of tasks, to the usage of their accounts and
-- to the partition's totals, and brings the lists of accounts by balance and by spending (include/ranks.lua) and what was sold
-- (include/sales.lua) up to date. In the same step it moves the cursor and removes the notes, so each counts once, however often
-- and wherever this runs. Where nothing is left to add, the next accounts lose the days that have left the week. The names of usage and totals are built here, so they are not among KEYS; they are in the same partition.
-- Decision 0054.
--
-- BOUND  4000  the entries and the ended tasks that are asked for, and the fields that they change
-- `most_text`: the maximum number of entries, and of ended tasks. `kept_ms`: how long usage and totals are kept after their
-- month, of 31 days. `fields_max` is of the usage of an account in a month; further keys count together as *.
-- RETURNS outcome, now
--   rolled   entries counted, ended tasks counted, whether there is more (1 or 0), how many entries of the ledger are not
--            accounted for (only where there is no more; 0 unless somebody changed what is stored)
--@keys ledger rolled_name trimmed ended
--@args now most_text usage_prefix totals_prefix kept_ms fields_max
--@include clock entry numbers ranks sales
--@unless_frozen ledger
local most = tonumber(most_text)
-- The place of a number among those of a field.
local PLACES = { requests = 1, charged = 2, refunded = 3, completed = 4, failed = 5, purchased = 6, adjusted = 7, uncollected = 8,
  uncollected_credits = 9, seconds = 10, trials = 11, goodwill = 12, reversed = 13 }
local PLACES_MAX = 13
-- The kind of an entry's credits that belong to no request.
local COUNTED_AS = { purchase = "purchased", adjustment = "adjusted", trial = "trials", goodwill = "goodwill" }

local rolled = call("HMGET", rolled_name, "entry", "entries", "skipped", "week", "week_at")
if not rolled[1] then
  local cut = call("HMGET", trimmed, "last_entry", "at", "entries")
  rolled = { cut[1] or "0-0", "0", cut[3] or "0", int(week_begins(now)), "0" }
  call("HSET", rolled_name, "entry", rolled[1], "entries", "0", "skipped", rolled[3],
    "since", cut[2] and int(tonumber(cut[2]) + 1) or "0", "ended_since", int(now), "week", rolled[4], "week_at", "0")
end

-- By name and field the numbers to add, by their place; written in the end, one command for all that concerns the same field.
local sums, month_starts = {}, {}
local function sum_of(name, field, month_at)
  local fields = sums[name]
  if not fields then
    fields = {}
    sums[name], month_starts[name] = fields, month_at
  end
  local sum = fields[field]
  if not sum then
    sum = { 0, 0 }
    fields[field] = sum
  end
  return sum
end

-- The names that all entries of a day (days since 1970) have in common; by endpoint the beginning of their fields.
local days = {}
local function names_of(number)
  local names = days[number]
  if not names then
    local month, day, month_at = day_of(number * DAY_MS)
    names = { ending = ":" .. month, totals = totals_prefix .. month, day = day, month_at = month_at, date = month .. "-" .. day,
      fields = { [""] = day .. " -" } }
    days[number] = names
  end
  return names
end

local function add(number, account_id, endpoint, key_id, what, amount, requests)
  local names, place = names_of(number), PLACES[what]
  local month_at = names.month_at
  local field = names.fields[endpoint]
  if not field then
    field = names.day .. " " .. endpoint
    names.fields[endpoint] = field
  end
  local function count(sum)
    sum[place] = (sum[place] or 0) + amount
    if requests then sum[1] = sum[1] + requests end
  end
  count(sum_of(usage_prefix .. account_id .. names.ending, field .. " " .. ((endpoint == "" or key_id == "") and "-" or key_id), month_at))
  count(sum_of(names.totals, names.day, month_at))
  if endpoint ~= "" then count(sum_of(names.totals, field, month_at)) end
  note_money(account_id, names.date, number * DAY_MS, what, amount)
end

local entries = call("XRANGE", ledger, "(" .. rolled[1], "+", "COUNT", most)
-- Charges, nearly all entries, are counted by day and by the text up to the amount before anything else is read of them. The last entry of
-- each group has the rest.
local floor = math.floor
local charges, last_of = {}, {}
for nth, one in ipairs(entries) do
  local group, at = string.match(one[2][2], "^consume ([^ ]+ [^ ]* [^ ]+ [^ ]+) ([^ ]+)")
  if group then
    local day = floor(at / DAY_MS)
    local counts = charges[day]
    if not counts then
      counts = {}
      charges[day] = counts
    end
    counts[group] = (counts[group] or 0) + 1
    last_of[group] = nth
  else
    local entry = read_entry(one[2])
    local kind, number, day = kind_of(entry), tonumber(entry.amount), floor(entry.at / DAY_MS)
    note_balance(entry.account_id, nth, entry.balance_after)
    if kind == "charge" then
      add(day, entry.account_id, entry.endpoint, entry.key_id, "charged", -number, 1)
    elseif kind == "refund" then
      add(day, entry.account_id, entry.endpoint, entry.key_id, "refunded", number)
    elseif kind == "reversal" then
      add(day, entry.account_id, "", "", "reversed", -number)
    else
      add(day, entry.account_id, "", "", COUNTED_AS[kind], number)
      if kind ~= "adjustment" then note_sale(ledger, entry, kind, kept_ms) end
    end
  end
end
for day, counts in pairs(charges) do
  for group, count in pairs(counts) do
    local nth = last_of[group]
    local account_id, key_id, endpoint, amount, balance =
      string.match(entries[nth][2][2], "^consume ([^ ]+) ([^ ]*) ([^ ]+) ([^ ]+) [^ ]+ ([^ ]+)")
    add(day, account_id, endpoint, key_id, "charged", -amount * count, count)
    note_balance(account_id, nth, balance)
  end
end

-- Whole seconds, rounded half up.
local function run_seconds(bound_at, ended_at)
  return math.floor(math.max(0, ended_at - bound_at) / 1000 + 0.5)
end

local notes = call("ZRANGE", ended, 0, most - 1, "WITHSCORES")
for at = 1, #notes, 2 do
  local what, number, account_id, key_id, endpoint = string.match(notes[at], "^%S+ (%S+) (%S+) (%S+) (%S+) (.*)$")
  local ended_at = tonumber(notes[at + 1])
  local day = floor(ended_at / DAY_MS)
  add(day, account_id, endpoint, key_id, what == "unfailed" and "failed" or what, what == "unfailed" and -1 or 1)
  if what == "uncollected" then
    add(day, account_id, endpoint, key_id, "uncollected_credits", tonumber(number))
  elseif what == "completed" then
    add(day, account_id, endpoint, key_id, "seconds", run_seconds(tonumber(number), ended_at))
  end
end

local function added(earlier, sum)
  local numbers, last = {}, 0
  for number in string.gmatch(earlier or "", "%S+") do
    last = last + 1
    local more = sum[last]
    numbers[last] = more and more ~= 0 and int(number + more) or number
  end
  for place = last + 1, PLACES_MAX do
    local more = sum[place]
    if more and more ~= 0 then
      for empty = last + 1, place - 1 do numbers[empty] = "0" end
      numbers[place], last = int(more), place
    end
  end
  return table.concat(numbers, " ")
end

for name, fields in pairs(sums) do
  local is_longer = false
  for field, sum in pairs(fields) do
    local earlier = call("HGET", name, field)
    if not earlier and string.find(field, " ", 1, true) and call("HLEN", name) >= tonumber(fields_max) then
      field = string.gsub(field, "%S+$", "*")
      earlier = call("HGET", name, field)
    end
    call("HSET", name, field, added(earlier, sum))
    is_longer = is_longer or not earlier
  end
  if is_longer then call("PEXPIREAT", name, int(month_starts[name] + 31 * DAY_MS + tonumber(kept_ms))) end
end
write_ranks(ledger, now, tonumber(rolled[4]))
if #notes > 0 then call("ZREMRANGEBYRANK", ended, 0, #notes / 2 - 1) end
if #entries > 0 then
  call("HSET", rolled_name, "entry", entries[#entries][1])
  call("HINCRBY", rolled_name, "entries", #entries)
end
local has_more = #entries == most or #notes == 2 * most
if not has_more then
  local first, at, is_behind = leave_week(ledger, now, tonumber(rolled[4]), tonumber(rolled[5]))
  if int(first) ~= rolled[4] or int(at) ~= rolled[5] then
    call("HSET", rolled_name, "week", int(first), "week_at", int(at))
  end
  has_more = is_behind
end
if has_more then return { "rolled", now, #entries, #notes / 2, 1, 0 } end
local there = tonumber(call("HGET", trimmed, "entries") or 0) + call("XLEN", ledger)
return { "rolled", now, #entries, #notes / 2, 0, there - tonumber(rolled[3]) - tonumber(rolled[2]) - #entries }
