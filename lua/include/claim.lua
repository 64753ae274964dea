--@include owner
-- A claim says which request owns a task id over all partitions, and the tag of the partition where its record is. Takes it
-- for a request whose record is `task`. Returns nothing, or the name of the record of another request that has it.
local function taken_by_other(claim, request_id, task)
  local text = request_id .. " " .. string.match(task, "{(p%d+)}")
  local found = call("SET", claim, text, "NX", "GET")
  if not found or read_owner(found) == request_id then return nil end
  return (string.gsub(task, "p%d+", string.match(found, " (p%d+)$"), 1))
end
