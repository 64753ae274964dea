--@include ledger
--@include numbers
--@include spent
-- Who may refund. A request is refunded once. There are three cases:
-- 1. The upstream says that the task failed, or src/settlement/task-verdict.ts judges it `gone` or `expired`. Then OBSERVE
--    refunds it, called by the sweeper or a client's poll, if the setting `tasks.refund_failed` is true. A task ends once.
-- 2. An operator releases the task (src/store/operator-tasks.ts). OBSERVE refunds it, whatever the setting says.
-- 3. An operator refunds a task that has finished (src/store/refunds.ts). REFUND keeps which requests it refunded, for ever.
-- A refund is the full price of the request. A request that was bound without a charge (`uncollected`, or unmetered at price 0) gets none. Credits
-- from `tollgate credits grant` are no refund: RECHARGE posts them under a reference, and the task stays as it is. In the ledger
-- both are entries of type `recharge`; a refund has the reason `refund`.
-- `request` is its record: price, endpoint, task_id, uncollected, key_id, and when it was admitted (ms), whose month gets room
-- again. `operator` is who refunds it, if one does: by, and in case 3 reference and note. Returns the credits refunded, and the
-- id of the entry.
local function post_refund(account, ledger, now, account_id, request_id, request, operator)
  local price = tonumber(request.price)
  if request.uncollected or price == 0 then return 0 end
  local spent = read_spent(string.match(account, "^tg:{p%d+}") .. ":key:" .. (request.key_id or ""))
  local entry = { "request_id", request_id, "key_id", request.key_id or "" }
  for _, field in ipairs({ "by", "reference", "note" }) do
    if operator and operator[field] then
      entry[#entry + 1] = field
      entry[#entry + 1] = operator[field]
    end
  end
  local id = post(account, ledger, int(now), account_id, "recharge", price, 0, -price, request.endpoint, "refund",
    request.task_id, entry)
  add_spent(spent, request.admitted_at, -price)
  return price, id
end
