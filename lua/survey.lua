#!lua flags=no-writes
-- SURVEY: counts a few open requests of one list of a partition by state and age. Reads only. Their names are built here,
-- so they are not among KEYS; they are in the same partition.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  500  the requests that are asked for
-- `list` is holds or polls: request id by ms. `first_index` and `last_index` say which of it are counted. `ages`: ms at
-- which each age but the first begins.
-- RETURNS now, when the first of the list is due (ms), how many there are, how many were looked at; age of the oldest
--   hold and of the oldest task (ms); holds of each age, tasks of each age
--@keys list
--@args now first_index last_index requests_prefix ages...
--@include numbers
--@include request
local ids = call("ZRANGE", list, first_index, last_index)
local open = { held = {}, bound = {} }
for _, counts in pairs(open) do
  for age = 1, #ages + 1 do counts[age] = 0 end
end
local oldest = { held = 0, bound = 0 }
for _, id in ipairs(ids) do
  local record = read_request(requests_prefix .. id)
  local counts = open[record.state]
  if counts then
    local age_ms = math.max(0, now - tonumber(record.state == "held" and record.admitted_at or record.bound_at or now))
    local age = 1
    while ages[age] and age_ms >= tonumber(ages[age]) do age = age + 1 end
    counts[age] = counts[age] + 1
    oldest[record.state] = math.max(oldest[record.state], age_ms)
  end
end
local first = call("ZRANGE", list, 0, 0, "WITHSCORES")
local answer = { now, first[2] or int(now), call("ZCARD", list), #ids, oldest.held, oldest.bound }
for _, counts in ipairs({ open.held, open.bound }) do
  for _, count in ipairs(counts) do answer[#answer + 1] = count end
end
return answer
