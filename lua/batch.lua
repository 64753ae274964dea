-- Stands behind every verb that serves requests (src/store/scripts.ts joins them): the verb's body is the function
-- `run`, which is called for each item of a call. An item that fails leaves its neighbours alone.
--
-- KEYS  the items' KEYS, one item after the other
-- ARGV  1 now (ms or empty)  2 tiers, then for each item: how many KEYS it has, how many ARGV beyond these two, and
--       those ARGV; so each body counts its ARGV from 3
-- RETURNS for each item its reply, or its error
local replies, key_at, arg_at = {}, 1, 3
while ARGV[arg_at] do
  local last_key = key_at + tonumber(ARGV[arg_at]) - 1
  local last_arg = arg_at + 1 + tonumber(ARGV[arg_at + 1])
  local ok, answer = pcall(run, { unpack(KEYS, key_at, last_key) }, { ARGV[1], ARGV[2], unpack(ARGV, arg_at + 2, last_arg) })
  if not ok then
    local words = type(answer) == "table" and answer.err or tostring(answer)
    -- What a command says has its code in front, which tells the gateway whether to try again; Lua's own words have none.
    answer = { err = string.find(words, "^%u+ ") and words or "ERR " .. words }
  end
  replies[#replies + 1] = answer
  key_at, arg_at = last_key + 1, last_arg + 1
end
return replies
