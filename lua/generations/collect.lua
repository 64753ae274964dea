#!lua flags=allow-oom
-- COLLECT: deletes the record of a finished or void request after its retention. The retention is fixed at admission, so
-- every gateway applies the same one, and it outlasts any late BIND. The ledger keeps the charge. The account keeps the
-- latest due time of its deleted records but for those that the upstream refused or never got: after a step of the clock, BIND reads it
-- to refuse what may have been charged (decision 0008). The account's name is built here, so it is not among KEYS; it is in the same partition.
--
-- BOUND  50  one request
-- `claim` is only given on one server. `restored_ms` is the retention of a record that was restored, `archive` the name of
-- the archive's record.
-- RETURNS outcome
--   collected
--   kept        open, or ended too recently; postponed in `done` until its retention has passed
--   unarchived  the store has an archive that has not got this request yet; it stays first in `done`
--   missing     no such record: another collector was first
--@keys request done task_name? claim?
--@args now request_id restored_ms accounts_prefix archive
--@include numbers request task
--@unless_frozen request
local record = read_request(request)
local state = record.state
if state then
  local is_open = state ~= "finished" and state ~= "void"
  local ended_at = is_open and now or tonumber(record.finished_at or record.void_at or 0)
  local kept_until = ended_at + tonumber(record.retention_ms or restored_ms)
  -- Before it is postponed: its copier may have looked beyond that place in `done`.
  local generation = not is_open and call("HGET", archive, "generation")
  if generation and record.archived ~= generation .. "/" .. state then return { "unarchived" } end
  if is_open or kept_until > now then
    call("ZADD", done, "XX", int(kept_until), request_id)
    return { "kept" }
  end
  local account, due_at = accounts_prefix .. (record.account_id or ""), record.due_at
  local collected_until = call("HGET", account, "collected_until")
  local is_uncharged = state == "void" and (record.reason == "refused" or record.reason == "unsent")
  if due_at and not is_uncharged and tonumber(due_at) > tonumber(collected_until or 0) then
    call("HSET", account, "collected_until", due_at)
  end
end
call("DEL", request)
call("ZREM", done, request_id)
if task_name then
  local task = read_task(task_name)
  if task and task.request_id == request_id then call("DEL", task_name) end
end
local owner = claim and call("GET", claim)
if owner and read_owner(owner) == request_id then call("DEL", claim) end
return { state and "collected" or "missing" }
