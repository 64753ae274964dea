#!lua flags=allow-oom
-- GATHER: adds the open slots of some keys to those of their account, which has got limits over all its keys while tasks are
-- open. From the moment at which ACCOUNT has marked it, ADMIT, BIND, VOID and OBSERVE keep them in step, so the order in
-- which its keys and their slots come does not matter, nor does it if they come again. The names of the keys' slots are built here.
--
-- BOUND  1500  the slots that are asked for, and the keys that are named
-- `slots_prefix` begins the names of keys' slots. `first_cursor`: where the slots of the first key go on, a cursor of SSCAN.
-- RETURNS outcome, now
--   gathered   how many of these keys are done, where the slots of the next one go on: the slots up to there are the account's, too
--   unlimited  the account has no limits over all its keys; nothing happens
--@keys account slots
--@args now slots_prefix slots_max first_cursor key_ids...
--@unless_frozen account
if call("HEXISTS", account, "limited") == 0 then return { "unlimited", now } end
local left, cursor, done = tonumber(slots_max), first_cursor, 0
for _, key_id in ipairs(key_ids) do
  if left <= 0 then break end
  local page = call("SSCAN", slots_prefix .. key_id, cursor, "COUNT", left)
  for _, request_id in ipairs(page[2]) do
    call("SADD", slots, request_id)
  end
  left, cursor = left - #page[2], page[1]
  if cursor ~= "0" then break end
  done = done + 1
end
return { "gathered", now, done, cursor }
