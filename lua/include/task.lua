-- A task's record, or nil: whether its id is disputed, the request that owns the id, its key and account, when it was
-- bound (ms); after the first observation also when that was (ms), the status and the data (JSON), else three empty texts.
local function read_task(name)
  local text = call("GET", name)
  if not text then return nil end
  local mark, request_id, key_id, account_id, bound_at, observed_at, status, data =
    string.match(text, "^(!?)([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ?([^ ]*) ?([^ ]*) ?(.*)$")
  return {
    text = text,
    is_disputed = mark == "!",
    request_id = request_id,
    key_id = key_id,
    account_id = account_id,
    bound_at = bound_at,
    observed_at = observed_at,
    status = status,
    data = data,
  }
end

-- The text of a record before the first observation, which is appended after a space.
local function task_text(request_id, key_id, account_id, bound_at)
  return request_id .. " " .. key_id .. " " .. account_id .. " " .. bound_at
end

local function is_final(status)
  return status == "completed" or status == "failed"
end

-- The request that owns a task id, by the text of its record or of its claim.
local function read_owner(text)
  return string.match(text, "^!?(%S+)")
end

-- A claim says which request owns a task id over all partitions, and the partition of its record.
local function claim_text(request_id, prefix)
  return request_id .. " " .. string.sub(prefix, 5, -3)
end

-- Takes a claim. Returns nothing, or the name of the record of another request that has it.
local function taken_by_other(claim, request_id, prefix, task_id)
  local found = call("SET", claim, claim_text(request_id, prefix), "NX", "GET")
  if not found or read_owner(found) == request_id then return nil end
  return "tg:{" .. string.match(found, " (p%d+)$") .. "}:task:" .. task_id
end

-- The upstream gave a task id that another request owns. From now on it may speak of either task: its answers must neither
-- reach another account nor replace one that was given. An unfinished task of the same account is not disputed.
local function dispute(name, account_id)
  local task = read_task(name)
  if not task or task.is_disputed then return end
  if task.account_id ~= account_id or is_final(task.status) then call("SET", name, "!" .. task.text) end
end

-- On a Redis Cluster a task id may be disputed before its owner's BIND. Then this mark stands for the record until the BIND.
local function noted_text(request_id, account_id)
  return "!" .. request_id .. " " .. account_id .. " ? 0"
end

-- The account of the second request in such a mark; nil for a record.
local function read_noted(text)
  return string.match(text, "^!%S+ (%S+) %? 0$")
end
