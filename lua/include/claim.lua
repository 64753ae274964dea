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
