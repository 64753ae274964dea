#!lua
-- CHANGE: an operator changes a key's record.
-- The fields of its records stand in src/store/records.ts.
--
-- KEYS  1 key (hash)  2 tiers (hash: tier to how many keys use it)
-- ARGV  1 now (ms or empty)  2 field that must not be there yet (empty: none)
--       3.. field, value pairs; an empty value removes the field
-- RETURNS outcome, now
--   changed
--   kept     the field is there; nothing happens
--@include changed
--@include clock
--@include tiers
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
if ARGV[2] ~= "" and redis.call("HEXISTS", KEYS[1], ARGV[2]) == 1 then return { "kept", now } end
note_changed(KEYS[1], "key " .. string.match(KEYS[1], ":key:(.*)$"))
local changes = { unpack(ARGV, 3) }
for at = 1, #changes, 2 do
  local field, value = changes[at], changes[at + 1]
  if value == "" then
    redis.call("HDEL", KEYS[1], field)
  else
    redis.call("HSET", KEYS[1], field, value)
  end
end
count_tier(KEYS[1], KEYS[2])
return { "changed", now }
