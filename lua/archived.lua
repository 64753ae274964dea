#!lua flags=allow-oom
-- ARCHIVED: the archive has committed a batch. Ended requests are marked, so that COLLECT may delete them. Accounts and keys
-- that have not changed since they were read are no longer noted as changed. Whoever notes a batch must have seen the one that
-- was noted last: otherwise the archive may have lost that one before this one was written. It must have announced the batch,
-- too: otherwise the store has lost the announcement, and perhaps what was read for the batch. The names of the requests are
-- built here, so they are not among KEYS; they are in the same partition.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  3000  a batch of the copier
-- KEYS  1 archive (hash)  2 changed (hash: account or key to the number of its changes)
-- ARGV  1 now (ms or empty)  2 generation  3 prefix of the names of requests  4 the newest ledger entry that it has (empty: none)
--       5 the number of the newest batch that it has (0: none)  6 the newest entry that was noted last (empty:
--       none)  7 the newest batch that was noted last (0: none)  8 the score in `done` up to which requests were looked at (ms)
--       9 how many requests follow
--       10.. request id, state that was copied; behind them account or key, the number of its changes that was read
-- RETURNS outcome, now
--   archived
--   other     the archive was replaced meanwhile; nothing happens
--   unseen    another batch was noted or announced last; nothing happens
--@include clock
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local archive, changed, generation = KEYS[1], KEYS[2], ARGV[2]
local noted = redis.call("HMGET", archive, "generation", "newest", "batch", "writing")
if noted[1] ~= generation then return { "other", now } end
if (noted[2] or "") ~= ARGV[6] or (noted[3] or "0") ~= ARGV[7] then return { "unseen", now } end
if noted[4] ~= ARGV[5] .. " after " .. ARGV[7] then return { "unseen", now } end
local items = { unpack(ARGV, 10) }
local requests = 2 * tonumber(ARGV[9])
for at = 1, requests, 2 do
  local request, state = ARGV[3] .. items[at], items[at + 1]
  -- A void request may have been bound since the copy was made: then its copy is out of date.
  if redis.call("HGET", request, "state") == state then
    redis.call("HSET", request, "archived", generation .. " " .. state)
  end
end
for at = requests + 1, #items, 2 do
  if redis.call("HGET", changed, items[at]) == items[at + 1] then redis.call("HDEL", changed, items[at]) end
end
redis.call("HSET", archive, "looked_until", ARGV[8], "batch", ARGV[5])
if ARGV[4] ~= "" then redis.call("HSET", archive, "newest", ARGV[4]) end
return { "archived", now }
