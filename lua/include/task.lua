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
