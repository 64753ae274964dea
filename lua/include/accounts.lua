--@include events metadata words
-- Lists of a partition in which operators find accounts: `labels` (zset: the label in lower case, a space, account id) and
-- `inactive` (zset: status, a space, account id), all scores 0. A script that changes the label or the status of an account
-- calls `unlist_account` before it and `list_account` after it: both go by the record. Lower case is that of ASCII.
local function listed_as(account, account_id)
  local tag = string.match(account, "^tg:{p%d+}")
  local record = call("HMGET", account, "label", "status")
  return {
    { tag .. ":labels", record[1] and string.lower(record[1]) .. " " .. account_id },
    { tag .. ":inactive", record[2] and record[2] .. " " .. account_id },
  }
end

local function unlist_account(account, account_id)
  for _, list in ipairs(listed_as(account, account_id)) do
    if list[2] then call("ZREM", list[1], list[2]) end
  end
end

local function list_account(account, account_id)
  for _, list in ipairs(listed_as(account, account_id)) do
    if list[2] then call("ZADD", list[1], 0, list[2]) end
  end
end

-- A member of metadata may have many short words, and each takes more room than it has letters.
local WORDS_OF_ACCOUNT_MAX = 64

-- The first words of label and metadata: a script that changes these calls it with ZREM before and with ZADD after that.
local function change_words_of_account(command, account, account_id)
  local record = call("HMGET", account, "label", "metadata")
  local places = word_places(record[1] or "", account_id, WORDS_MAX)
  for _, value in ipairs(metadata_values(record[2])) do
    local found = value.is_flag and {} or word_places(value.text, account_id, WORDS_MAX)
    for at = 1, math.min(#found, WORDS_OF_ACCOUNT_MAX - #places) do
      places[#places + 1] = found[at]
    end
  end
  change_words(command, account, places)
end

local RESTRICTION = { suspended = 1, closed = 2 }

-- True if an account with one status may do more with another; an unset status is active.
local function lifts(before, after)
  return (RESTRICTION[after] or 0) < (RESTRICTION[before] or 0)
end

-- Tells an account that it is suspended or closed (`account.suspended`). `revision` is that of its record, which tells this time apart.
local function tell_restricted(account, now, account_id, status, revision)
  local data = '{"status":"' .. status .. '"}'
  local subject = account_id .. "-" .. (tonumber(revision or 0) + 1)
  add_event(account, now, account_id, call("HGET", account, "webhooks"), "account.suspended", subject, data, data)
end
