#!lua flags=no-writes
-- HISTORY: reads an account's ledger entries, newest first: each names the one before it. It answers those that are wanted.
-- It looks at a bounded number, and says where the next call goes on. Reads only.
--
-- BOUND  3000  the entries that it may look at
-- `from` is the entry to begin with: its id; or `(` and an id: first the account's newest entry before that id is looked
-- for. At most `looked_max` are looked at, and `answered_max` answered. `wanted` is ` type/kind type/kind `, with a space
-- around each; it, `endpoint`, `since_text` and `before_text` (ms) may be empty: all. `later_refunds` (1 or empty): refunds
-- of any later time, too.
-- RETURNS outcome, now, the entries as XRANGE returns them, where to go on, as ARGV[3] (empty: there is nothing more)
--   read
--   left    where to go on is an entry that the ledger does not have
--   other   an entry is another account's
--@keys ledger trimmed
--@args now account_id from looked_max answered_max wanted endpoint since_text before_text later_refunds
--@include entry
local at = from
local since, before = tonumber(since_text), tonumber(before_text)
-- An id never has an earlier time than its entry, but for the moment between two looks at the clock.
local SLACK_MS = 1000

local function is_wanted(entry)
  local made_at, kind = tonumber(entry.at), kind_of(entry)
  return (wanted == "" or string.find(wanted, " " .. entry.type .. "/" .. kind .. " ", 1, true))
    and (endpoint == "" or entry.endpoint == endpoint)
    and not (since and made_at < since)
    and (not (before and made_at >= before) or (later_refunds == "1" and kind == "refund"))
end

local looked, answered = 0, {}
while at ~= "" and looked < tonumber(looked_max) and #answered < tonumber(answered_max) do
  looked = looked + 1
  local is_search = string.sub(at, 1, 1) == "("
  local one = call("XREVRANGE", ledger, at, is_search and "-" or at, "COUNT", 1)[1]
  if not one then
    -- A search that ends at the beginning of a whole ledger has seen everything.
    if is_search and call("EXISTS", trimmed) == 0 then return { "read", now, answered, "" } end
    return { "left", now, answered, at }
  end
  local entry = read_entry(one[2])
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
