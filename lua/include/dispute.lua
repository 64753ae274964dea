--@include task
-- The upstream gave a task id that another request owns. From now on it may speak of either task: its answers must neither
-- reach another account nor replace one that was given. An unfinished task of the same account is not disputed.
local function dispute(name, account_id)
  local task = read_task(name)
  if not task or task.is_disputed then return end
  if task.account_id ~= account_id or is_final(task.status) then call("SET", name, "!" .. task.text) end
end

-- On a Redis Cluster a task id may be disputed before its owner's BIND. noted_text is the mark that stands for the record
-- until then; read_noted returns the account of the second request, or nil for a record.
local function noted_text(request_id, account_id)
  return "!" .. request_id .. " " .. account_id .. " ? 0"
end
local function read_noted(text)
  return string.match(text, "^!%S+ (%S+) %? 0$")
end
