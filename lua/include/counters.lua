-- What requests count of a key, or of all keys of an account that has limits over them: one text in the field `counters` of its
-- record (decision 0071). Its words: the clock (ms), the credits spent in the month (0 for an account), the UTC day, the requests
-- of that day, and of a key the limits that its latest admission was held to. src/records/packed-fields.ts reads and writes it, too.
local NO_COUNTERS = "0 0 -1 0"
local CLOCK_WORD, SPENT_WORD, DAY_COUNT_WORD = 1, 2, 4

-- Clock, credits spent, day, requests of the day, as texts.
local function read_counters(text)
  return string.match(text or NO_COUNTERS, "^(%S+) (%S+) (%S+) (%S+)")
end

local function counters_text(clock, spent, day, day_count)
  return clock .. " " .. spent .. " " .. day .. " " .. day_count
end

-- Changes words of the counters in a record of this name: `...` are places and texts.
local function change_counters(name, ...)
  local words = {}
  for word in string.gmatch(call("HGET", name, "counters") or NO_COUNTERS, "%S+") do words[#words + 1] = word end
  for at = 1, select("#", ...), 2 do words[select(at, ...)] = select(at + 1, ...) end
  call("HSET", name, "counters", table.concat(words, " "))
end
