-- Stands behind every verb that serves requests (src/store/scripts.ts joins them): the verb's body is the function
-- `run`, which is called for each item of a call. An item that fails leaves its neighbours alone. Items and replies are
-- one word of JSON: a word of its own for each name and number cost the gateway more (decision 0020).
--
-- KEYS  1 a name of the first item: tells a Redis Cluster where the call goes. The items' other names are of that
--       partition, too, but need not be on a single server
-- ARGV  1 now (ms or empty)  2 tiers  3 JSON: for each item its KEYS and, beyond the first two, its ARGV
-- RETURNS JSON: for each item its reply, or {"err": what went wrong}
local replies = {}
for at, item in ipairs(cjson.decode(ARGV[3])) do
  local ok, answer = pcall(run, item[1], { ARGV[1], ARGV[2], unpack(item[2]) })
  if not ok then
    local words = type(answer) == "table" and answer.err or tostring(answer)
    -- What a command says has its code in front, which tells the gateway whether to try again; Lua's own words have none.
    answer = { err = string.find(words, "^%u+ ") and words or "ERR " .. words }
  end
  replies[at] = answer
end
return cjson.encode(replies)
