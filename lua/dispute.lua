#!lua flags=allow-oom
-- DISPUTE: on a Redis Cluster, marks a task id that the upstream gave to a second request. The gateway finds that by the
-- claim; on a single server BIND does. The script runs in the partition of the request that has the claim.
--
-- BOUND  20  one task
-- KEYS  1 task (string)
-- ARGV  1 now (ms or empty)  2 request id that owns the task id  3 account id of the second request
--       4 how long a mark waits for the owner's BIND, which may come later (ms)
-- RETURNS outcome, now
--   disputed  the owner's record is here; marked if the accounts differ or the task has ended
--   noted     no record is here; the owner's BIND finds the mark
--   missing   no record of the owner's is here; nothing happens
--@include clock
--@include dispute
--@include owner
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local task, owner, account_id = KEYS[1], ARGV[2], ARGV[3]
local text = redis.call("GET", task)
local noted = text and read_noted(text)
if text and not noted then
  if read_owner(text) ~= owner then return { "missing", now } end
  dispute(task, account_id)
  return { "disputed", now }
end
-- Requests of two accounts: one of them is not the owner's.
if noted and noted ~= account_id and read_owner(text) == owner then account_id = "?" end
redis.call("SET", task, noted_text(owner, account_id), "PX", ARGV[4])
return { "noted", now }
