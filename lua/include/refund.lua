--@include ledger
--@include numbers
--@include spent
-- Who may refund. OBSERVE is the only script that refunds. It refunds when it ends a task as failed, and a task ends once, so
-- there is at most one refund. There are two cases:
-- 1. The upstream says that the task failed, or src/settlement/task-verdict.ts judges it `gone` or `expired`. Then the sweeper
--    or a client's poll refunds it if the setting `tasks.refund_failed` is true.
-- 2. An operator releases the task (src/store/operator-tasks.ts). The setting does not matter then. The console requires ADMIN_TOKEN;
--    the command line works for everyone who has access to Redis.
-- A refund is the full price of the request. A request that was bound without a charge (`uncollected`) gets none. Credits
-- from `tollgate credits grant` are no refund: RECHARGE posts them under a reference, and the task stays as it is. In the ledger
-- both are entries of type `recharge`; a refund has the reason `refund`.
-- `request` is its record: price, endpoint, task_id, uncollected, key_id, and when it was admitted (ms), whose month
-- gets room again. `by` is the operator, if one releases it. Returns the credits
-- refunded.
local function post_refund(account, ledger, now, account_id, request_id, request, by)
  if request.uncollected then return 0 end
  local price = tonumber(request.price)
  local spent = read_spent(string.match(account, "^tg:{p%d+}") .. ":key:" .. request.key_id)
  post(account, ledger, int(now), account_id, "recharge", price, 0, -price, request.endpoint, "refund",
    request.task_id, { "request_id", request_id, "key_id", request.key_id, by and "by", by })
  add_spent(spent, request.admitted_at, -price)
  return price
end
