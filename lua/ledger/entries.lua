#!lua flags=no-writes
-- ENTRIES: reads the next entries of a partition's ledger, with the checkpoints from which their accounts go on, at one
-- instant. The names of the checkpoints are built here, so they are not among KEYS; they are in the same partition.
--
-- BOUND  4000  the entries that are asked for
-- `after` is the entry that was read last.
-- RETURNS outcome, now, the entries as XRANGE returns them, the last entry that has left the ledger (empty: none),
--   checkpoints of these entries' accounts where the entry before has left it (account id, checkpoint)
--   read
--@keys ledger trimmed
--@args now after entries_max checkpoints_prefix
--@include checkpoint
local entries = call("XRANGE", ledger, "(" .. after, "+", "COUNT", tonumber(entries_max))
local cut = call("HGET", trimmed, "last_entry") or ""
return { "read", now, entries, cut, checkpoints_before(entries, cut, checkpoints_prefix) }
