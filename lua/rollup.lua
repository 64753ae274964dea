#!lua flags=allow-oom
-- ROLLUP: adds the next entries of a partition's ledger, and the next noted ends of tasks, to the usage of their accounts and
-- to the partition's totals, and brings the lists of accounts by balance and by spending (include/ranks.lua) and what was sold
-- (include/sales.lua) up to date. In the same step it moves the cursor and removes the notes, so each counts once, however often
-- and wherever this runs. The names of usage and totals are built here, so they are not among KEYS; they are in the same partition.
-- The fields of its records stand in src/records/records.ts. Decision 0054.
--
-- BOUND  4000  the entries and the ended tasks that are asked for, and the fields that they change
-- `most_text`: the maximum number of entries, and of ended tasks. `kept_ms`: how long usage and totals are kept after their
-- month, of 31 days. `fields_max` is of the usage of an account in a month; further keys count together as *.
-- RETURNS outcome, now
--   rolled   entries counted, ended tasks counted, whether there is more (1 or 0), how many entries of the ledger are not
--            accounted for (only where there is no more; 0 unless somebody changed what is stored)
--@keys ledger rolled_name trimmed ended
--@args now most_text usage_prefix totals_prefix kept_ms fields_max
--@include clock
--@include day
--@include entry
--@include kind
--@include numbers
--@include ranks
--@include sales
--@unless_frozen ledger
local most = tonumber(most_text)
-- The numbers of a field, in this order.
local COUNTS = { "requests", "charged", "refunded", "completed", "failed", "purchased", "adjusted", "uncollected",
  "uncollected_credits", "seconds", "trials", "goodwill", "reversed" }
-- What the credits of an entry count as that belongs to no request.
local COUNTED_AS = { purchase = "purchased", adjustment = "adjusted", trial = "trials", goodwill = "goodwill" }

local rolled = call("HMGET", rolled_name, "entry", "entries", "skipped")
if not rolled[1] then
  local cut = call("HMGET", trimmed, "last_entry", "at", "entries")
  rolled = { cut[1] or "0-0", "0", cut[3] or "0" }
  call("HSET", rolled_name, "entry", rolled[1], "entries", "0", "skipped", rolled[3],
    "since", cut[2] and int(tonumber(cut[2]) + 1) or "0", "ended_since", int(now))
end

-- By name and field; written in the end, one command for all that concerns the same field.
local sums = {}
local function add_to(name, field, month_at, what, number, requests)
  local fields = sums[name] or { month_at = month_at }
  sums[name] = fields
  local sum = fields[field] or {}
  fields[field] = sum
  sum[what] = (sum[what] or 0) + number
  if requests then sum.requests = (sum.requests or 0) + requests end
end

local function add(at, account_id, endpoint, key_id, what, number, requests)
  local month, day, month_at = day_of(tonumber(at))
  local place = (endpoint or "") == "" and "- -" or endpoint .. " " .. ((key_id or "") == "" and "-" or key_id)
  add_to(usage_prefix .. account_id .. ":" .. month, day .. " " .. place, month_at, what, number, requests)
  add_to(totals_prefix .. month, day, month_at, what, number, requests)
  if (endpoint or "") ~= "" then add_to(totals_prefix .. month, day .. " " .. endpoint, month_at, what, number, requests) end
  note_money(account_id, month .. "-" .. day, month_at + (day - 1) * DAY_MS, what, number)
end

local entries = call("XRANGE", ledger, "(" .. rolled[1], "+", "COUNT", most)
-- Charges, nearly all entries, are summed up by day and by the beginning of their text before anything else is read of them.
local charges = {}
for _, one in ipairs(entries) do
  local group, amount, at = string.match(one[2][2], "^consume (%S+ %S* %S+) (%S+) (%S+) ")
  if group then
    local day = math.floor(at / DAY_MS)
    local groups = charges[day] or {}
    charges[day] = groups
    local sum = groups[group] or { requests = 0, charged = 0 }
    groups[group] = sum
    sum.requests, sum.charged = sum.requests + 1, sum.charged - amount
  else
    local entry = read_entry(one[2])
    local kind, number = kind_of(entry), tonumber(entry.amount)
    if kind == "charge" then
      add(entry.at, entry.account_id, entry.endpoint, entry.key_id, "charged", -number, 1)
    elseif kind == "refund" then
      add(entry.at, entry.account_id, entry.endpoint, entry.key_id, "refunded", number)
    elseif kind == "reversal" then
      add(entry.at, entry.account_id, "", "", "reversed", -number)
    else
      add(entry.at, entry.account_id, "", "", COUNTED_AS[kind], number)
      if kind ~= "adjustment" then note_sale(ledger, entry, kind, kept_ms) end
    end
  end
end
for day, groups in pairs(charges) do
  for group, sum in pairs(groups) do
    local account_id, key_id, endpoint = string.match(group, "^(%S+) (%S*) (%S+)$")
    add(day * DAY_MS, account_id, endpoint, key_id, "charged", sum.charged, sum.requests)
  end
end

-- Whole seconds, rounded half up.
local function run_seconds(bound_at, ended_at)
  return math.floor(math.max(0, ended_at - bound_at) / 1000 + 0.5)
end

local notes = call("ZRANGE", ended, 0, most - 1, "WITHSCORES")
for at = 1, #notes, 2 do
  local what, number, account_id, key_id, endpoint = string.match(notes[at], "^%S+ (%S+) (%S+) (%S+) (%S+) (.*)$")
  local ended_at = notes[at + 1]
  add(ended_at, account_id, endpoint, key_id, what, 1)
  if what == "uncollected" then
    add(ended_at, account_id, endpoint, key_id, "uncollected_credits", tonumber(number))
  elseif what == "completed" then
    add(ended_at, account_id, endpoint, key_id, "seconds", run_seconds(tonumber(number), tonumber(ended_at)))
  end
end

for name, fields in pairs(sums) do
  local month_at, is_longer = fields.month_at, false
  fields.month_at = nil
  for field, added in pairs(fields) do
    local earlier = call("HGET", name, field)
    if not earlier and string.find(field, " ", 1, true) and call("HLEN", name) >= tonumber(fields_max) then
      field = string.gsub(field, "%S+$", "*")
      earlier = call("HGET", name, field)
    end
    local words, last = {}, 0
    for number in string.gmatch(earlier or "", "%S+") do words[#words + 1] = number end
    for index, what in ipairs(COUNTS) do
      if added[what] then words[index] = int(tonumber(words[index] or 0) + added[what]) end
      if (words[index] or "0") == "0" then words[index] = "0" else last = index end
    end
    call("HSET", name, field, table.concat(words, " ", 1, last))
    is_longer = is_longer or not earlier
  end
  if is_longer then call("PEXPIREAT", name, int(month_at + 31 * DAY_MS + tonumber(kept_ms))) end
end
write_ranks(ledger, now)
if #notes > 0 then call("ZREMRANGEBYRANK", ended, 0, #notes / 2 - 1) end
if #entries > 0 then
  call("HSET", rolled_name, "entry", entries[#entries][1])
  call("HINCRBY", rolled_name, "entries", #entries)
end
if #entries == most or #notes == 2 * most then return { "rolled", now, #entries, #notes / 2, 1, 0 } end
local there = tonumber(call("HGET", trimmed, "entries") or 0) + call("XLEN", ledger)
return { "rolled", now, #entries, #notes / 2, 0, there - tonumber(rolled[3]) - tonumber(rolled[2]) - #entries }
