#!lua flags=no-writes
-- SNAPSHOT: an account with its keys and their open requests, and the ledger of its partition, all at one instant. The
-- names of keys and requests are found on the way, so they are not among KEYS; they are of the same partition.
--
-- KEYS  1 account (hash)  2 references (hash)  3 keys (set)  4 ledger (stream)
-- ARGV  1 now (ms or empty)  2 tiers (unused)  3 the ledger entry that was read last  4 how many entries at the most
--       and what stands before the id in the names of:  5 keys  6 windows  7 slots  8 requests
-- RETURNS outcome, now, the ledger's next entries as XRANGE has them, then
--   behind  as many entries as asked for: there may be more before this instant, so nothing else was read
--   seen    account as HGETALL has it, how many references it has, for each key {id, record, window, slots}, for
--           each request in these slots {id, record}
local now = store_now()
local entries = redis.call("XRANGE", KEYS[4], "(" .. ARGV[3], "+", "COUNT", tonumber(ARGV[4]))
if #entries == tonumber(ARGV[4]) then return { "behind", now, entries } end
local keys, requests = {}, {}
for at, id in ipairs(redis.call("SMEMBERS", KEYS[3])) do
  local slots = redis.call("SMEMBERS", ARGV[7] .. id)
  local window = redis.call("LRANGE", ARGV[6] .. id, 0, -1)
  keys[at] = { id, redis.call("HGETALL", ARGV[5] .. id), window, slots }
  for _, request in ipairs(slots) do
    requests[#requests + 1] = { request, redis.call("HGETALL", ARGV[8] .. request) }
  end
end
local account, references = redis.call("HGETALL", KEYS[1]), redis.call("HLEN", KEYS[2])
return { "seen", now, entries, account, references, keys, requests }
