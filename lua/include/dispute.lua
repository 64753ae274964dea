--@include task
-- The request that owns a task id, by the text of its record.
local function read_owner(text)
  return string.match(text, "^!?(%S+)")
end

-- The upstream gave a task id that another request owns. From now on nobody can tell whose video it speaks of: what it
-- says must reach no other account, and replace no answer that was given. A running task that the same account asked for
-- twice goes on.
local function dispute(name, account_id)
  local task = read_task(name)
  if not task or task.is_disputed then return end
  if task.account_id ~= account_id or is_final(task.status) then redis.call("SET", name, "!" .. task.text) end
end

-- On a Redis Cluster a task id may be disputed before its owner's BIND. What stands for the record until then, and of which
-- account the second request is, or nil for a record.
local function noted_text(request_id, account_id)
  return "!" .. request_id .. " " .. account_id .. " ? 0"
end
local function read_noted(text)
  return string.match(text, "^!%S+ (%S+) %? 0$")
end
