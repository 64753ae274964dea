#!lua flags=allow-oom
-- ROLLUP: adds the next entries of a partition's ledger, and the next noted ends of tasks, to the usage of their accounts and
-- to the partition's totals. In the same step it moves the cursor and removes the notes, so each counts once, however often and
-- wherever this runs. The names of usage and totals are built here, so they are not among KEYS; they are in the same partition.
-- The fields of its records stand in src/records/records.ts. Decision 0054.
--
-- BOUND  4000  the entries and the ended tasks that are asked for, and the fields that they change
-- KEYS  1 ledger (stream)  2 rolled (hash)  3 trimmed (hash)  4 ended (zset: notes of lua/include/ended.lua by ms)
-- ARGV  1 now (ms or empty)  2 maximum number of entries, and of ended tasks
--       3 prefix of the names of usage  4 of totals  5 how long they are kept after their month (ms, of 31 days)
--       6 how many fields the usage of an account in a month may have; further keys count together as *
-- RETURNS outcome, now
--   rolled   entries counted, ended tasks counted, whether there is more (1 or 0), how many entries of the ledger are not
--            accounted for (only where there is no more; 0 unless somebody changed what is stored)
--@include clock
--@include day
--@include kind
--@include numbers
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local most = tonumber(ARGV[2])
-- The numbers of a field, in this order.
local COUNTS = { "requests", "charged", "refunded", "completed", "failed", "purchased", "adjusted", "uncollected",
  "uncollected_credits", "seconds" }

local rolled = redis.call("HMGET", KEYS[2], "entry", "entries", "skipped")
if not rolled[1] then
  local cut = redis.call("HMGET", KEYS[3], "last_entry", "at", "entries")
  rolled = { cut[1] or "0-0", "0", cut[3] or "0" }
  redis.call("HSET", KEYS[2], "entry", rolled[1], "entries", "0", "skipped", rolled[3],
    "since", cut[2] and int(tonumber(cut[2]) + 1) or "0", "ended_since", int(now))
end

-- By name and field; written in the end, one command for all that concerns the same field.
local sums = {}
local function add_to(name, field, month_at, what, number)
  local fields = sums[name] or { month_at = month_at }
  sums[name] = fields
  fields[field] = fields[field] or {}
  fields[field][what] = (fields[field][what] or 0) + number
end

local function add(at, account_id, endpoint, key_id, what, number)
  local month, day, month_at = day_of(tonumber(at))
  local place = (endpoint or "") == "" and "- -" or endpoint .. " " .. ((key_id or "") == "" and "-" or key_id)
  add_to(ARGV[3] .. account_id .. ":" .. month, day .. " " .. place, month_at, what, number)
  add_to(ARGV[4] .. month, day, month_at, what, number)
end

local entries = redis.call("XRANGE", KEYS[1], "(" .. rolled[1], "+", "COUNT", most)
for _, one in ipairs(entries) do
  local entry = {}
  for at = 1, #one[2], 2 do entry[one[2][at]] = one[2][at + 1] end
  local kind, amount = kind_of(entry), tonumber(entry.amount)
  if kind == "charge" then
    add(entry.at, entry.account_id, entry.endpoint, entry.key_id, "requests", 1)
    add(entry.at, entry.account_id, entry.endpoint, entry.key_id, "charged", -amount)
  elseif kind == "refund" then
    add(entry.at, entry.account_id, entry.endpoint, entry.key_id, "refunded", amount)
  else
    add(entry.at, entry.account_id, "", "", kind == "purchase" and "purchased" or "adjusted", amount)
  end
end

-- Whole seconds, rounded half up.
local function run_seconds(bound_at, ended_at)
  return math.floor(math.max(0, ended_at - bound_at) / 1000 + 0.5)
end

local notes = redis.call("ZRANGE", KEYS[4], 0, most - 1, "WITHSCORES")
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
  local month_at = fields.month_at
  fields.month_at = nil
  for field, added in pairs(fields) do
    local earlier = redis.call("HGET", name, field)
    if not earlier and string.find(field, " ", 1, true) and redis.call("HLEN", name) >= tonumber(ARGV[6]) then
      field = string.gsub(field, "%S+$", "*")
      earlier = redis.call("HGET", name, field)
    end
    local numbers = {}
    for number in string.gmatch(earlier or "", "%S+") do numbers[#numbers + 1] = tonumber(number) end
    local words, last = {}, 0
    for index, what in ipairs(COUNTS) do
      local number = (numbers[index] or 0) + (added[what] or 0)
      words[index] = int(number)
      if number ~= 0 then last = index end
    end
    redis.call("HSET", name, field, table.concat(words, " ", 1, last))
  end
  redis.call("PEXPIREAT", name, int(month_at + 31 * DAY_MS + tonumber(ARGV[5])))
end
if #notes > 0 then redis.call("ZREMRANGEBYRANK", KEYS[4], 0, #notes / 2 - 1) end
if #entries > 0 then
  redis.call("HSET", KEYS[2], "entry", entries[#entries][1])
  redis.call("HINCRBY", KEYS[2], "entries", #entries)
end
if #entries == most or #notes == 2 * most then return { "rolled", now, #entries, #notes / 2, 1, 0 } end
local there = tonumber(redis.call("HGET", KEYS[3], "entries") or 0) + redis.call("XLEN", KEYS[1])
return { "rolled", now, #entries, #notes / 2, 0, there - tonumber(rolled[3]) - tonumber(rolled[2]) - #entries }
