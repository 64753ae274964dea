#!lua flags=no-writes
-- SNAPSHOT: reads an account with its keys and their open requests, and the ledger of its partition, at one instant. The
-- names of keys and requests are built here, so they are not among KEYS; they are in the same partition.
-- The fields of its records stand in src/store/records.ts.
--
-- KEYS  1 account (hash)  2 references (hash)  3 keys (zset)  4 ledger (stream)  5 trimmed (hash)  6 checkpoint (string)
--       7 the account's slots (set)
-- ARGV  1 now (ms or empty)  2 the ledger entry that was read last  3 maximum number of entries
--       and the prefixes of the names of:  4 keys  5 windows  6 slots  7 requests  8 checkpoints
-- RETURNS outcome, now, the ledger's next entries as XRANGE returns them, the last entry that has left the ledger (empty:
--   none), checkpoints of these entries' accounts where the entry before has left it (account id, checkpoint), then
--   behind  as many entries as asked for: there may be more before this instant, so nothing else was read
--   seen    account as HGETALL returns it, how many references it has, for each key {id, record, window, slots}, for
--           each request in these slots {id, record}, the account's checkpoint (empty: none), and its slots
--@include clock
--@include cut
local now = store_now(ARGV[1])
local entries = redis.call("XRANGE", KEYS[4], "(" .. ARGV[2], "+", "COUNT", tonumber(ARGV[3]))
local cut = redis.call("HGET", KEYS[5], "last_entry") or ""
local before = checkpoints_before(entries, cut, ARGV[8])
if #entries == tonumber(ARGV[3]) then return { "behind", now, entries, cut, before } end
local keys, requests = {}, {}
for at, id in ipairs(redis.call("ZRANGE", KEYS[3], 0, -1)) do
  local slots = redis.call("SMEMBERS", ARGV[6] .. id)
  local window = redis.call("LRANGE", ARGV[5] .. id, 0, -1)
  keys[at] = { id, redis.call("HGETALL", ARGV[4] .. id), window, slots }
  for _, request in ipairs(slots) do
    requests[#requests + 1] = { request, redis.call("HGETALL", ARGV[7] .. request) }
  end
end
local account, references = redis.call("HGETALL", KEYS[1]), redis.call("HLEN", KEYS[2])
local checkpoint = redis.call("GET", KEYS[6]) or ""
local account_slots = redis.call("SMEMBERS", KEYS[7])
return { "seen", now, entries, cut, before, account, references, keys, requests, checkpoint, account_slots }
