#!lua flags=no-writes
-- SNAPSHOT: reads an account with some of its keys and their open requests, and the ledger of its partition, at one instant. An
-- account with more than fits is read in slices, and so is a key with more open requests or a longer window; each slice is an
-- instant of its own. The names of keys and requests are built here, so they are not among KEYS; they are in the same partition.
-- The fields of its records stand in src/records/records.ts. Decision 0064.
--
-- BOUND  3000  what is asked for: entries of the ledger, and the elements of a slice
-- KEYS  1 account (hash)  2 references (hash)  3 keys (zset)  4 ledger (stream)  5 trimmed (hash)  6 checkpoint (string)
--       7 the account's slots (set)  8 holds (zset: request id by due ms)
-- ARGV  1 now (ms or empty)  2 the ledger entry that was read last  3 maximum number of entries
--       4 elements of a slice: keys, stamps of windows and open requests; a key that is read in parts may have as many once more
--       5 rank of the first key  6 where its slots go on: a cursor of SSCAN (empty: they have been read)  7 where its window goes on
--       and the prefixes of the names of:  8 keys  9 windows  10 slots  11 requests  12 checkpoints
-- RETURNS outcome, now, the ledger's next entries as XRANGE returns them, the last entry that has left the ledger (empty:
--   none), checkpoints of these entries' accounts where the entry before has left it (account id, checkpoint), then
--   behind  as many entries as asked for: there may be more before this instant, so nothing else was read
--   seen    account as HGETALL returns it, how many references it has, its checkpoint (empty: none), how many slots it has of its
--           own, the rank of the key with which the next slice begins (empty: none), where its slots and its window go on, and
--           for each key {id, whether all of it was read (1 or 0), how many slots it has, stamps of its window in the last
--           60 s, the stamp before those that were read (empty: none), stamps, record, its open requests}; of each of these {id,
--           whether a hold is among `holds` (1 or 0), whether it has a slot of the account (1 or 0), record}. Records are
--           values (empty: none) of the fields that are asked for here
--@include clock
--@include cut
--@include window
local now = store_now(ARGV[1])
local entries = redis.call("XRANGE", KEYS[4], "(" .. ARGV[2], "+", "COUNT", tonumber(ARGV[3]))
local cut = redis.call("HGET", KEYS[5], "last_entry") or ""
local before = checkpoints_before(entries, cut, ARGV[12])
if #entries == tonumber(ARGV[3]) then return { "behind", now, entries, cut, before } end

-- A record's values of these fields.
local function values_of(name, ...)
  local values = redis.call("HMGET", name, ...)
  for at = 1, select("#", ...) do values[at] = values[at] or "" end
  return values
end

local function read_requests(ids)
  local requests = {}
  for at, id in ipairs(ids) do
    local record = values_of(ARGV[11] .. id, "state", "account_id", "key_id", "price", "admitted_at", "uncollected", "reason")
    local is_due = record[1] == "held" and redis.call("ZSCORE", KEYS[8], id) and 1 or 0
    requests[at] = { id, is_due, redis.call("SISMEMBER", KEYS[7], id), record }
  end
  return requests
end

local keys, left = {}, tonumber(ARGV[4])
local rank, slots_from, window_from = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local ids = redis.call("ZRANGE", KEYS[3], rank, rank + left - 1)
local next_rank = #ids == left and rank + left or ""
for at, id in ipairs(ids) do
  local window, slots = ARGV[9] .. id, ARGV[10] .. id
  local slot_count, length = redis.call("SCARD", slots), redis.call("LLEN", window)
  -- A key that does not fit here any more is the first of the next slice.
  if at > 1 and 1 + slot_count + length > left then
    next_rank = rank
    break
  end
  local record = values_of(ARGV[8] .. id, "clock_ms", "day", "day_count", "late_day", "late_count", "limits")
  local stamps = redis.call("LRANGE", window, window_from, window_from + left - 1)
  local newer = window_from > 0 and redis.call("LINDEX", window, window_from - 1) or ""
  local page = slots_from == "" and { "0", {} } or redis.call("SSCAN", slots, slots_from, "COUNT", left)
  local slots_to, window_to = page[1] == "0" and "" or page[1], window_from + #stamps
  local is_end = slots_to == "" and window_to >= length
  local is_whole = is_end and slots_from == "0" and window_from == 0
  keys[at] = { id, is_whole and 1 or 0, slot_count, (read_window(window, tonumber(record[1]) or 0)), newer, stamps, record,
    read_requests(page[2]) }
  if not is_end then
    next_rank, slots_from, window_from = rank, slots_to, window_to
    break
  end
  left, rank, slots_from, window_from = left - 1 - #stamps - #page[2], rank + 1, "0", 0
end
return { "seen", now, entries, cut, before, redis.call("HGETALL", KEYS[1]), redis.call("HLEN", KEYS[2]),
  redis.call("GET", KEYS[6]) or "", redis.call("SCARD", KEYS[7]), next_rank, slots_from, window_from, keys }
