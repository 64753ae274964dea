#!lua flags=no-writes
-- HISTORY: reads an account's ledger entries, newest first: each names the one before it. It answers those that are wanted.
-- It looks at a bounded number, and says where the next call goes on. Reads only.
--
-- BOUND  3000  the entries that it may look at
-- KEYS  1 ledger (stream)  2 trimmed (hash)
-- ARGV  1 now (ms or empty)  2 account id  3 the entry to begin with: its id; or `(` and an id: first the account's newest
--       entry before that id is looked for  4 how many to look at, at most  5 how many to answer, at most
--       6 what is wanted: ` type/kind type/kind `, with a space around each (empty: all)
--       7 endpoint (empty: all)  8 entries since (ms; empty: all)  9 entries before (ms; empty: all)
--       10 refunds of any later time, too (1 or empty)
-- RETURNS outcome, now, the entries as XRANGE returns them, where to go on, as ARGV[3] (empty: there is nothing more)
--   read
--   left    where to go on is an entry that the ledger does not have
--   other   an entry is another account's
--@include clock
--@include kind
local now = store_now(ARGV[1])
local ledger, account_id, at = KEYS[1], ARGV[2], ARGV[3]
local wanted, endpoint, since, before = ARGV[6], ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
-- An id never has an earlier time than its entry, but for the moment between two looks at the clock.
local SLACK_MS = 1000

local function fields_of(entry)
  local fields = {}
  for index = 1, #entry[2], 2 do fields[entry[2][index]] = entry[2][index + 1] end
  return fields
end

local function is_wanted(entry)
  local made_at, kind = tonumber(entry.at), kind_of(entry)
  return (wanted == "" or string.find(wanted, " " .. entry.type .. "/" .. kind .. " ", 1, true))
    and (endpoint == "" or entry.endpoint == endpoint)
    and not (since and made_at < since)
    and (not (before and made_at >= before) or (ARGV[10] == "1" and kind == "refund"))
end

local looked, answered = 0, {}
while at ~= "" and looked < tonumber(ARGV[4]) and #answered < tonumber(ARGV[5]) do
  looked = looked + 1
  local is_search = string.sub(at, 1, 1) == "("
  local one = redis.call("XREVRANGE", ledger, at, is_search and "-" or at, "COUNT", 1)[1]
  if not one then
    -- A search that ends at the beginning of a whole ledger has seen everything.
    if is_search and redis.call("EXISTS", KEYS[2]) == 0 then return { "read", now, answered, "" } end
    return { "left", now, answered, at }
  end
  local entry = fields_of(one)
  local id_ms = tonumber(string.match(one[1], "^%d+"))
  if since and id_ms < since - SLACK_MS then
    at = ""
  elseif entry.account_id == account_id then
    if is_wanted(entry) then answered[#answered + 1] = one end
    at = entry.previous or ""
  elseif is_search then
    at = "(" .. one[1]
  else
    return { "other", now, answered, at }
  end
end
return { "read", now, answered, at }
