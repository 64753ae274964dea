-- The request that owns a task id, by the text of its record or of its claim.
local function read_owner(text)
  return string.match(text, "^!?(%S+)")
end

-- A claim says which request owns a task id over all partitions, and the tag of the partition where its record is, `task`.
local function claim_text(request_id, task)
  return request_id .. " " .. string.sub(task, 5, string.find(task, "}", 5, true) - 1)
end

-- Takes a claim. Returns nothing, or the name of the record of another request that has it.
local function taken_by_other(claim, request_id, task)
  local found = call("SET", claim, claim_text(request_id, task), "NX", "GET")
  if not found or read_owner(found) == request_id then return nil end
  return (string.gsub(task, "p%d+", string.match(found, " (p%d+)$"), 1))
end
