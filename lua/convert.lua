#!lua flags=allow-oom
-- CONVERT: brings one record or list of layout 2 or 3 to layout 4, in one step. It goes by the type or the text that the name has: what is
-- in layout 4 already stays as it is. The names of keys are built here, so they are not among KEYS; they are in the same
-- partition. Decision 0057.
--
-- BOUND  none: all of one record of layout 2 or 3; only `store migrate` runs it
-- KEYS  1 the record or list
-- ARGV  1 now (ms or empty)  2 what it is: accounts, keys, checkpoint or references
--       3 prefix of the names of keys
-- RETURNS outcome, now
--   converted
--   kept       it is in layout 4, or does not exist
--@include checkpoint
--@include clock
--@include references
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local name, kind, key_prefix = KEYS[1], ARGV[2], ARGV[3]

-- A set becomes a sorted set; score_of says each member's score. Returns whether there was one.
local function sort_set(score_of)
  if redis.call("TYPE", name).ok ~= "set" then return false end
  local members, scores = redis.call("SMEMBERS", name), {}
  for at, member in ipairs(members) do scores[at] = score_of(member) end
  redis.call("DEL", name)
  for at, member in ipairs(members) do redis.call("ZADD", name, scores[at], member) end
  return true
end

-- A checkpoint's lines were: id, when the entry was made (ms), type, amount, balance after it, what it was for.
local function shorten_checkpoint()
  local text = redis.call("GET", name)
  if not text or not string.find(text, "\n%d+%-%d+ %d+ %a+ ") then return false end
  local checkpoint = read_checkpoint(name)
  checkpoint.lines = {}
  for line in string.gmatch(string.match(text, "\n(.*)$"), "[^\n]+") do
    local id, at, kind, amount, what = string.match(line, "^(%S+) (%S+) (%a+) (%S+) %S+ ?(.*)$")
    checkpoint.lines[#checkpoint.lines + 1] = checkpoint_line(id, at, kind, amount, what)
  end
  write_checkpoint(name, checkpoint)
  return true
end

-- Layout 3 had no index of references.
local function index_references()
  local account_id, is_new = string.match(name, ":references:(.*)$"), false
  for _, reference in ipairs(redis.call("HKEYS", name)) do
    if index_reference(name, reference, account_id) then is_new = true end
  end
  return is_new
end

local converters = {
  references = index_references,
  checkpoint = shorten_checkpoint,
  accounts = function() return sort_set(function() return "0" end) end,
  keys = function()
    return sort_set(function(id) return redis.call("HGET", key_prefix .. id, "created_at") or "0" end)
  end,
}
if converters[kind]() then return { "converted", now } end
return { "kept", now }
