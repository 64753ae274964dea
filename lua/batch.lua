-- Stands behind every verb that serves requests (src/store/scripts.ts joins them): the verb's body is the function
-- `run`, which is called for each item of a call. An item that fails leaves its neighbours alone. All items are one word,
-- and their replies another: a word of its own for each name and number cost the gateway more (decision 0020).
--
-- KEYS  1 a name of the first item: tells a Redis Cluster where the call goes. The items' other names are of that
--       partition, too, but need not be on a single server
-- ARGV  1 now (ms or empty)  2 tiers  3 for each item: a byte that says how many KEYS it has, one for its ARGV beyond the
--       first two, then these, each with a zero byte behind it
-- RETURNS JSON: for each item its reply, or {"err": what went wrong}
local items, at, replies = ARGV[3], 1, {}
while at <= #items do
  local key_count, arg_count, first = struct.unpack("BB", items, at)
  local keys = { struct.unpack(string.rep("s", key_count), items, first) }
  local args = { ARGV[1], ARGV[2], struct.unpack(string.rep("s", arg_count), items, keys[key_count + 1]) }
  -- What is last in each is where to read on.
  at, keys[key_count + 1], args[arg_count + 3] = args[arg_count + 3], nil, nil
  local ok, answer = pcall(run, keys, args)
  if not ok then
    local words = type(answer) == "table" and answer.err or tostring(answer)
    -- What a command says has its code in front, which tells the gateway whether to try again; Lua's own words have none.
    answer = { err = string.find(words, "^%u+ ") and words or "ERR " .. words }
  end
  replies[#replies + 1] = answer
end
return cjson.encode(replies)
