#!lua flags=no-writes
-- SURVEY: counts a few open requests of one list of a partition by state and age. Reads only. Their names are built here,
-- so they are not among KEYS; they are in the same partition.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  500  the requests that are asked for
-- KEYS  1 holds or polls (zset: request id by ms)
-- ARGV  1 now (ms or empty)  2 index in the list of the first request to count  3 of the last
--       4 prefix of the names of requests  5.. ms at which each age but the first begins
-- RETURNS now, when the first of the list is due (ms), how many there are, how many were looked at; age of the oldest
--   hold and of the oldest task (ms); holds of each age, tasks of each age
--@include clock
--@include numbers
local now = store_now(ARGV[1])
local ages = { unpack(ARGV, 5) }
local ids = redis.call("ZRANGE", KEYS[1], ARGV[2], ARGV[3])
local open = { held = {}, bound = {} }
for _, counts in pairs(open) do
  for age = 1, #ages + 1 do counts[age] = 0 end
end
local oldest = { held = 0, bound = 0 }
for _, id in ipairs(ids) do
  local record = redis.call("HMGET", ARGV[4] .. id, "state", "admitted_at", "bound_at")
  local counts = open[record[1]]
  if counts then
    local age_ms = math.max(0, now - tonumber(record[1] == "held" and record[2] or record[3] or now))
    local age = 1
    while ages[age] and age_ms >= tonumber(ages[age]) do age = age + 1 end
    counts[age] = counts[age] + 1
    oldest[record[1]] = math.max(oldest[record[1]], age_ms)
  end
end
local first = redis.call("ZRANGE", KEYS[1], 0, 0, "WITHSCORES")
local answer = { now, first[2] or int(now), redis.call("ZCARD", KEYS[1]), #ids, oldest.held, oldest.bound }
for _, counts in ipairs({ open.held, open.bound }) do
  for _, count in ipairs(counts) do answer[#answer + 1] = count end
end
return answer
