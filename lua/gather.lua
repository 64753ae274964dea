#!lua flags=allow-oom
-- GATHER: adds the open slots of some keys to those of their account, which has got limits over all its keys while tasks are
-- open. From the moment at which ACCOUNT has marked it, ADMIT, BIND, VOID and OBSERVE keep them in step, so the order in
-- which its keys come does not matter, nor does it if they come again. The names of the keys' slots are built here.
-- The fields of its records stand in src/store/records.ts.
--
-- KEYS  1 account (hash)  2 the account's slots (set)
-- ARGV  1 now (ms or empty)  2 prefix of the names of keys' slots  3.. key ids
-- RETURNS outcome, now
--   gathered   the slots of these keys are among the account's
--   unlimited  the account has no limits over all its keys; nothing happens
--@include clock
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
if redis.call("HEXISTS", KEYS[1], "limited") == 0 then return { "unlimited", now } end
for _, key_id in ipairs({ unpack(ARGV, 3) }) do
  for _, request_id in ipairs(redis.call("SMEMBERS", ARGV[2] .. key_id)) do
    redis.call("SADD", KEYS[2], request_id)
  end
end
return { "gathered", now }
