#!lua flags=allow-oom
-- GATHER: adds the open slots of some keys to those of their account, which has got limits over all its keys while tasks are
-- open. From the moment at which ACCOUNT has marked it, ADMIT, BIND, VOID and OBSERVE keep them in step, so the order in
-- which its keys and their slots come does not matter, nor does it if they come again. The names of the keys' slots are built here.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  1500  the slots that are asked for, and the keys that are named
-- KEYS  1 account (hash)  2 the account's slots (set)
-- ARGV  1 now (ms or empty)  2 prefix of the names of keys' slots  3 maximum number of slots
--       4 where the slots of the first key go on: a cursor of SSCAN  5.. key ids
-- RETURNS outcome, now
--   gathered   how many of these keys are done, where the slots of the next one go on: the slots up to there are the account's, too
--   unlimited  the account has no limits over all its keys; nothing happens
--@include clock
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
if redis.call("HEXISTS", KEYS[1], "limited") == 0 then return { "unlimited", now } end
local left, cursor, done = tonumber(ARGV[3]), ARGV[4], 0
for _, key_id in ipairs({ unpack(ARGV, 5) }) do
  if left <= 0 then break end
  local page = redis.call("SSCAN", ARGV[2] .. key_id, cursor, "COUNT", left)
  for _, request_id in ipairs(page[2]) do
    redis.call("SADD", KEYS[2], request_id)
  end
  left, cursor = left - #page[2], page[1]
  if cursor ~= "0" then break end
  done = done + 1
end
return { "gathered", now, done, cursor }
