#!lua flags=no-writes
-- RANKED: a page of a sorted list of accounts, behind a place that need not be in it any more. Reads only. Many accounts may have
-- the same score, so the place among them is searched by halves.
--
-- BOUND  300  the members that are asked for
-- `score` and `member` are the place: the page begins behind it (both empty: at the beginning). `descending` (1 or 0): from the
-- largest score down, and of the same score from the last member on.
-- RETURNS now, then member and score by turns
--@keys list
--@args now score member most_text descending
local most = tonumber(most_text)

-- By bytes, as Redis orders members: Lua compares texts by the locale of the server.
local function is_before(one, other)
  for at = 1, #one do
    local byte, others = string.byte(one, at), string.byte(other, at)
    if byte ~= others then return others ~= nil and byte < others end
  end
  return #one < #other
end

-- How many members come before the place, or are it where `with_it` is true.
local function count_before(with_it)
  local first = call("ZCOUNT", list, "-inf", "(" .. score)
  local last = first + call("ZCOUNT", list, score, score)
  while first < last do
    local middle = math.floor((first + last) / 2)
    local found = call("ZRANGE", list, middle, middle)[1]
    if is_before(found, member) or (with_it and found == member) then first = middle + 1 else last = middle end
  end
  return first
end

local answer = { now }
local function add(page)
  for at = 1, #page do answer[#answer + 1] = page[at] end
  return answer
end

if descending == "1" then
  local count = score == "" and call("ZCARD", list) or count_before(false)
  local skipped = call("ZCARD", list) - count
  return add(call("ZRANGE", list, skipped, skipped + most - 1, "REV", "WITHSCORES"))
end
local count = score == "" and 0 or count_before(true)
return add(call("ZRANGE", list, count, count + most - 1, "WITHSCORES"))
