#!lua flags=allow-oom
-- RECLAIM: takes back the refund of a task that ended as too old, since it has completed after all. The task is completed from
-- then on. Only here a task's end changes, and only if the gateway, not the upstream, had ended it. Decision 0076.
--
-- BOUND  60  one request
-- `data` is the completed task as JSON.
-- RETURNS outcome, now
--   charged_again  completed now; then the credits that were charged again (0: it had not been refunded)
--   uncovered      the balance does not allow the price; nothing happens
--   finished       the request is not one that ended as too old, its task is disputed or another request's, or an operator
--                  refunded it; nothing happens
--@keys task request account ledger done key_name
--@args now request_id account_id data
--@include events ledger money numbers refund request rollup_note spent task
--@unless_frozen request
local record = read_request(request)
local kept = read_task(task)
if record.ended_by ~= "expired" or record.uncollected or not kept or kept.is_disputed or kept.request_id ~= request_id then
  return { "finished", now }
end
local price = tonumber(record.price)
-- A refund of an operator's stays. A correction left the rest of the charge.
local is_by_operator, refunds = is_refunded(account, request_id, nil)
if is_by_operator and not is_corrected(account, refunds, request_id) then return { "finished", now } end
local spent = read_spent(key_name)
if record.refunded then
  local money = read_money(account)
  if not money or money.available < price then return { "uncovered", now } end
end
-- While a Redis Cluster migrates the slot key by key, a command on a name that has moved fails, and earlier writes stay: what can run
-- twice comes before the charge. After that only the text of the task can fail, which the next poll mends.
-- At the place of all that ends now, as in OBSERVE, which has doubled the retention; COLLECT postpones it.
call("ZADD", done, forget_at(now, record.retention_ms and record.retention_ms / 2), request_id)
add_event(account, now, account_id, call("HGET", account, "webhooks"), "task.completed", request_id, data,
  '{"task_id":"' .. (record.task_id or "") .. '","status":"completed"}', record.callback)
-- Usage counted it as failed.
note_ended(request, record.finished_at, request_id, account_id, record.key_id, record.endpoint, "unfailed", record.bound_at)
note_ended(request, now, request_id, account_id, record.key_id, record.endpoint, "completed", record.bound_at)
if record.refunded then
  post(account, ledger, int(now), account_id, "reclaim", -price, 0, price, record.endpoint, record.task_id, request_id, record.key_id or "",
    { "reason", "completed_late" })
  add_spent(spent, record.admitted_at or record.due_at, price)
end
-- The archive gets this end, too.
call("SET", request, changed_request(record.text, record.state, "status", "completed", "ended_by", "upstream", "finished_at", int(now),
  "charged_again", record.refunded and "1", "archived", false))
call("SET", task, task_text(request_id, record.key_id, account_id, record.bound_at) .. " " .. int(now) .. " completed " .. data)
return { "charged_again", now, record.refunded and int(price) or "0" }
