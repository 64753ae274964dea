#!lua flags=no-writes
-- ENTRIES: reads the next entries of a partition's ledger, with the checkpoints from which their accounts go on, at one
-- instant. The names of the checkpoints are built here, so they are not among KEYS; they are in the same partition.
--
-- BOUND  4000  the entries that are asked for
-- KEYS  1 ledger (stream)  2 trimmed (hash)
-- ARGV  1 now (ms or empty)  2 the entry that was read last  3 maximum number of entries  4 prefix of the names of checkpoints
-- RETURNS outcome, now, the entries as XRANGE returns them, the last entry that has left the ledger (empty: none),
--   checkpoints of these entries' accounts where the entry before has left it (account id, checkpoint)
--   read
--@include clock
--@include cut
local now = store_now(ARGV[1])
local entries = redis.call("XRANGE", KEYS[1], "(" .. ARGV[2], "+", "COUNT", tonumber(ARGV[3]))
local cut = redis.call("HGET", KEYS[2], "last_entry") or ""
return { "read", now, entries, cut, checkpoints_before(entries, cut, ARGV[4]) }
