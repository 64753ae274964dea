#!lua flags=no-writes
-- SNAPSHOT: reads an account with some of its keys and their open requests, and the ledger of its partition, at one instant. An
-- account with more than fits is read in slices, and so is a key with more open requests or a longer window; each slice is an
-- instant of its own. The names of keys and requests are built here, so they are not among KEYS; they are in the same partition.
-- Decision 0064.
--
-- BOUND  3000  what is asked for: entries of the ledger, and the elements of a slice
-- `after` is the ledger entry that was read last. `slice_max`: keys, stamps of windows and open requests of a slice; a key
-- that is read in parts may have as many once more. `rank_text` is of the first key; `slots_from` (a cursor of SSCAN; empty:
-- they have been read) and `window_from_text` say where its slots and its window go on.
-- RETURNS outcome, now, the ledger's next entries as XRANGE returns them, the last entry that has left the ledger (empty:
--   none), checkpoints of these entries' accounts where the entry before has left it (account id, checkpoint), then
--   behind  as many entries as asked for: there may be more before this instant, so nothing else was read
--   seen    account as HGETALL returns it, how many references it has, credits of its grants that
--           were reversed, its checkpoint (empty: none), how many slots it has of its
--           own, the rank of the key with which the next slice begins (empty: none), where its slots and its window go on, and
--           for each key {id, whether all of it was read (1 or 0), how many slots it has, stamps of its window in the last
--           60 s, the stamp before those that were read (empty: none), stamps, record as HGETALL returns it, its open requests}; of
--           each of these {id, whether a hold is due as one (include/due.lua) (1 or 0), whether it has a slot of the account (1 or 0), values
--           (empty: none) of the fields that are asked for here}
--@keys account references account_keys ledger trimmed checkpoint account_slots due reversed
--@args now after entries_max slice_max rank_text slots_from window_from_text keys_prefix windows_prefix slots_prefix requests_prefix checkpoints_prefix
--@include checkpoint due limits request window
local entries = call("XRANGE", ledger, "(" .. after, "+", "COUNT", tonumber(entries_max))
local cut = call("HGET", trimmed, "last_entry") or ""
local before = checkpoints_before(entries, cut, checkpoints_prefix)
if #entries == tonumber(entries_max) then return { "behind", now, entries, cut, before } end

local PARTS = { "state", "account_id", "key_id", "price", "admitted_at", "uncollected", "reason" }
local function values_of(name)
  local record, values = read_request(name), {}
  for at, part in ipairs(PARTS) do values[at] = record[part] or "" end
  return values
end

local function read_requests(ids)
  local requests = {}
  for at, id in ipairs(ids) do
    local record = values_of(requests_prefix .. id)
    local due_at = record[1] == "held" and call("ZSCORE", due, id)
    local is_due = due_at and tonumber(due_at) < TASKS_FROM and 1 or 0
    requests[at] = { id, is_due, call("SISMEMBER", account_slots, id), record }
  end
  return requests
end

local keys, left = {}, tonumber(slice_max)
local rank, window_from = tonumber(rank_text), tonumber(window_from_text)
local ids = call("ZRANGE", account_keys, rank, rank + left - 1)
local next_rank = #ids == left and rank + left or ""
for at, id in ipairs(ids) do
  local window, slots = windows_prefix .. id, slots_prefix .. id
  local slot_count, length = call("SCARD", slots), call("LLEN", window)
  -- A key that does not fit here any more is the first of the next slice.
  if at > 1 and 1 + slot_count + length > left then
    next_rank = rank
    break
  end
  local clock = tonumber((read_counters(call("HGET", keys_prefix .. id, "counters"))))
  local stamps = call("LRANGE", window, window_from, window_from + left - 1)
  local newer = window_from > 0 and call("LINDEX", window, window_from - 1) or ""
  local page = slots_from == "" and { "0", {} } or call("SSCAN", slots, slots_from, "COUNT", left)
  local slots_to, window_to = page[1] == "0" and "" or page[1], window_from + #stamps
  local is_end = slots_to == "" and window_to >= length
  local is_whole = is_end and slots_from == "0" and window_from == 0
  keys[at] = { id, is_whole and 1 or 0, slot_count, (read_window(window, clock)), newer, stamps, call("HGETALL", keys_prefix .. id),
    read_requests(page[2]) }
  if not is_end then
    next_rank, slots_from, window_from = rank, slots_to, window_to
    break
  end
  left, rank, slots_from, window_from = left - 1 - #stamps - #page[2], rank + 1, "0", 0
end
return { "seen", now, entries, cut, before, call("HGETALL", account), call("HLEN", references), call("HGET", reversed, "") or "0",
  call("GET", checkpoint) or "", call("SCARD", account_slots), next_rank, slots_from, window_from, keys }
