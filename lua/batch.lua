-- Stands behind every script that serves requests (src/store/script-runner.ts joins them): the script's body is the function
-- `run`, which is called for each item of a call. An item that fails leaves its neighbours alone. The items are packed
-- into one ARGV string: a string of its own for each name and number cost the gateway more (decision 0020).
--
-- KEYS  1 a name of the first item: tells a Redis Cluster where the call goes. The items' other names are of that
--       partition, too, but need not be on a single server
-- ARGV  1 now (ms or empty), then the tiers where the script takes them, and last the items: for each a byte that says how
--       many KEYS it has, one for its ARGV beyond now and tiers, then these, each with a zero byte behind it
-- RETURNS JSON: for each item its reply, or {"err": what went wrong}
local shared = #ARGV - 1
local items, at, replies = ARGV[#ARGV], 1, {}
while at <= #items do
  local key_count, arg_count, first = struct.unpack("BB", items, at)
  local keys = { struct.unpack(string.rep("s", key_count), items, first) }
  local words, rest = string.rep("s", arg_count), keys[key_count + 1]
  local args = shared == 1 and { ARGV[1], struct.unpack(words, items, rest) }
    or { ARGV[1], ARGV[2], struct.unpack(words, items, rest) }
  -- What is last in each is where to read on.
  at, keys[key_count + 1], args[arg_count + shared + 1] = args[arg_count + shared + 1], nil, nil
  local ok, answer = pcall(run, keys, args)
  if not ok then
    local words = type(answer) == "table" and answer.err or tostring(answer)
    -- An error of a command has its code in front, which tells the gateway whether to try again; Lua's own have none.
    answer = { err = string.find(words, "^%u+ ") and words or "ERR " .. words }
  end
  replies[#replies + 1] = answer
end
return cjson.encode(replies)
