#!lua flags=allow-oom
-- RECLAIM: takes back the refund of a task that ended as too old, since it has completed after all. The task is completed from
-- then on. Only here a task's end changes, and only if the gateway, not the upstream, had ended it. Decision 0076.
-- The fields of its records stand in src/records/records.ts.
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
--@include ended
--@include events
--@include ledger
--@include numbers
--@include refund
--@include retention
--@include spent
--@include task
--@unless_frozen request
local record = call("HMGET", request, "refunded", "uncollected", "ended_by", "price", "endpoint", "task_id", "key_id", "bound_at",
  "admitted_at", "due_at", "retention_ms", "callback")
local kept = read_task(task)
if record[3] ~= "expired" or record[2] or not kept or kept.is_disputed or kept.request_id ~= request_id then
  return { "finished", now }
end
local price = tonumber(record[4])
-- A refund of an operator's stays.
if is_refunded(account, request_id, nil) then return { "finished", now } end
local spent = read_spent(key_name)
if record[1] then
  local money = call("HMGET", account, "balance", "held")
  if tonumber(money[1] or 0) - tonumber(money[2] or 0) < price then return { "uncovered", now } end
end
-- While a Redis Cluster migrates the slot key by key, a command on a name that has moved fails, and earlier writes stay: what can run
-- twice comes before the charge. After that only the text of the task can fail, which the next poll mends.
call("ZADD", done, forget_at(now, record[11]), request_id)
add_event(account, now, account_id, call("HGET", account, "webhooks"), "task.completed", request_id, data,
  '{"task_id":"' .. (record[6] or "") .. '","status":"completed"}', record[12])
note_ended(request, now, request_id, account_id, record[7], record[5], "completed", record[8])
-- The archive gets this end, too.
call("HDEL", request, "archived")
if record[1] then
  post(account, ledger, int(now), account_id, "reclaim", -price, 0, price, record[5], record[6], request_id, record[7] or "",
    { "reason", "completed_late" })
  call("HSET", request, "charged_again", "1")
  add_spent(spent, record[9] or record[10], price)
end
call("HSET", request, "status", "completed", "ended_by", "upstream", "finished_at", int(now))
call("SET", task, task_text(request_id, record[7], account_id, record[8]) .. " " .. int(now) .. " completed " .. data)
return { "charged_again", now, record[1] and int(price) or "0" }
