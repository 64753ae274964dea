#!lua flags=allow-oom
-- DISPUTE: on a Redis Cluster, marks a task id that the upstream gave to a second request. CLAIM detects that, and reaches
-- only the claim; on a single Redis BIND marks the task's record itself. The record is in the partition of the first request,
-- which is not known, so the script runs in each partition.
--
-- KEYS  1 task (string)
-- ARGV  1 now (ms or empty)  2 request id that owns the task id  3 account id of the second request
--       4 how long a mark waits for the owner's BIND, which may come later (ms; 0: none is left)
-- RETURNS outcome, now
--   disputed  the owner's record is here; marked if the accounts differ or the task has ended
--   noted     no record is here; the owner's BIND finds the mark
--   missing   no record of the owner's is here; nothing happens
--@include clock
--@include dispute
--@include numbers
local now = store_now(ARGV[1])
local task, owner, account_id, lifetime_ms = KEYS[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local text = redis.call("GET", task)
local noted = text and read_noted(text)
if text and not noted then
  if read_owner(text) ~= owner then return { "missing", now } end
  dispute(task, account_id)
  return { "disputed", now }
end
if lifetime_ms == 0 then return { "missing", now } end
-- Requests of two accounts: one of them is not the owner's.
if noted and noted ~= account_id and read_owner(text) == owner then account_id = "?" end
redis.call("SET", task, noted_text(owner, account_id), "PX", int(lifetime_ms))
return { "noted", now }
