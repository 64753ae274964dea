--@include ledger numbers spent
-- Who may refund. A request is refunded once, and this file alone knows whether it was. There are three cases:
-- 1. The upstream says that the task failed, or src/settlement/task-verdict.ts judges it `gone` or `expired`. Then OBSERVE
--    refunds it, called by the sweeper, a client's poll or a callback, if the setting `tasks.refund_failed` is true. A task ends once.
-- 2. An operator releases the task (src/operations/tasks/operator-tasks.ts). OBSERVE refunds it, whatever the setting says.
-- 3. An operator refunds a task that has finished (src/operations/credits/refunds.ts). Which requests were refunded so is kept for ever: the
--    store may lose the record of one and get its charge again.
-- A refund is the full price of the request. A request that was bound without a charge (`uncollected`, or unmetered at price 0)
-- gets none. Credits from `tollgate credits grant` are no refund: RECHARGE posts them under a reference, and the task stays as
-- it is. In the ledger both are entries of type `recharge`; a refund has the reason `refund`.

-- True if a request was refunded. `recorded` is `refunded` of its record.
local function is_refunded(account, request_id, recorded)
  local refunds = string.gsub(account, ":account:", ":refunds:", 1)
  return recorded or call("HEXISTS", refunds, request_id) == 1, refunds
end

-- True if what an operator gave back was a part, since the price was wrong (CORRECT). `refunds` is as is_refunded answers it.
local function is_corrected(account, refunds, request_id)
  local references = string.gsub(account, ":account:", ":references:", 1)
  local stands_for = call("HGET", references, call("HGET", refunds, request_id) or "")
  return string.sub(stands_for or "", 1, 11) == "adjustment "
end

-- `record` is that of the request as read_request reads it; the caller writes its `refunded`, which is set here. The month of its
-- admission gets room again. `operator` is who refunds it, if one does: by, and in case 3 reference and note. Returns the credits
-- that this call refunded, 0 if there is nothing to refund, and the id of the entry.
local function post_refund(account, ledger, now, account_id, request_id, record, operator)
  local price = tonumber(record.price)
  if record.uncollected or price == 0 then return 0 end
  local is_repeat, refunds = is_refunded(account, request_id, record.refunded)
  local spent = read_spent(string.match(account, "^tg:{p%d+}") .. ":key:" .. (record.key_id or ""))
  record.refunded = "1"
  if is_repeat then return 0 end
  if operator and operator.reference then call("HSET", refunds, request_id, operator.reference) end
  local more = { "reason", "refund" }
  for _, field in ipairs({ "by", "reference", "note" }) do
    if operator and operator[field] then
      more[#more + 1] = field
      more[#more + 1] = operator[field]
    end
  end
  local id = post(account, ledger, int(now), account_id, "recharge", price, 0, -price, record.endpoint,
    record.task_id, request_id, record.key_id or "", more)
  -- Where the store had forgotten the request before its BIND, `due_at` says when it was admitted.
  add_spent(spent, record.admitted_at or record.due_at, -price)
  return price, id
end
