#!lua flags=allow-oom
-- DISPUTE: on a Redis Cluster, marks a task id that the upstream gave to a second request. The gateway finds that by the
-- claim; on a single server BIND does. The script runs in the partition of the request that has the claim.
--
-- BOUND  20  one task
-- `owner` is the request that owns the task id, `account_id` that of the second request. `mark_ms`: how long a mark waits
-- for the owner's BIND, which may come later.
-- RETURNS outcome, now
--   disputed  the owner's record is here; marked if the accounts differ or the task has ended
--   noted     no record is here; the owner's BIND finds the mark
--   missing   no record of the owner's is here; nothing happens
--@keys task
--@args now owner account_id mark_ms
--@include task
--@unless_frozen task
local text = call("GET", task)
local noted = text and read_noted(text)
if text and not noted then
  if read_owner(text) ~= owner then return { "missing", now } end
  dispute(task, account_id)
  return { "disputed", now }
end
-- Requests of two accounts: one of them is not the owner's.
if noted and noted ~= account_id and read_owner(text) == owner then account_id = "?" end
call("SET", task, noted_text(owner, account_id), "PX", mark_ms)
return { "noted", now }
