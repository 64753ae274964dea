#!lua flags=no-writes
-- SURVEY: counts a few open holds or tasks of a partition by state and age. Reads only. Their names are built here,
-- so they are not among KEYS; they are in the same partition.
--
-- BOUND  500  the requests that are asked for
-- `from`: 0 for holds, TASKS_FROM for tasks (include/due.lua); those of `due` between it and `to`. `first_index`: the place among them
-- of the first that is counted, `most`: how many are. `ages`: ms at
-- which each age but the first begins.
-- RETURNS now, when the first of them is due (ms), how many there are, how many were looked at; age of the oldest
--   hold and of the oldest task (ms); how far a hold is past its due time at most (ms), which a lease does not move; holds of
--   each age, tasks of each age
--@keys due
--@args now from to first_index most requests_prefix ages...
--@include numbers request
-- By rank: LIMIT walks to the first of them, from the beginning.
local before, count = call("ZCOUNT", due, "-inf", "(" .. from), call("ZCOUNT", due, from, to)
local ids = call("ZRANGE", due, before + first_index, before + math.min(first_index + most, count) - 1)
local open = { held = {}, bound = {} }
for _, counts in pairs(open) do
  for age = 1, #ages + 1 do counts[age] = 0 end
end
local oldest, overdue = { held = 0, bound = 0 }, 0
for _, id in ipairs(ids) do
  local record = read_request(requests_prefix .. id)
  local counts = open[record.state]
  if counts then
    local age_ms = math.max(0, now - tonumber(record.state == "held" and record.admitted_at or record.bound_at or now))
    local age = 1
    while ages[age] and age_ms >= tonumber(ages[age]) do age = age + 1 end
    counts[age] = counts[age] + 1
    oldest[record.state] = math.max(oldest[record.state], age_ms)
    if record.state == "held" then overdue = math.max(overdue, now - tonumber(record.due_at)) end
  end
end
local first = call("ZRANGEBYSCORE", due, from, to, "WITHSCORES", "LIMIT", 0, 1)
local answer = { now, first[2] and int(first[2] - from) or int(now), count, #ids, oldest.held, oldest.bound, int(overdue) }
for _, counts in ipairs({ open.held, open.bound }) do
  for _, count in ipairs(counts) do answer[#answer + 1] = count end
end
return answer
