-- Appended by src/redis/script-runner.ts to every script that serves requests: the script's body becomes the function
-- `run`, which is called for each item of a batch. An item that fails does not affect the others. The batch is packed into
-- one ARGV string: a string for each name and number costs the gateway more (decision 0020).
--
-- KEYS  1 a name of the first item, by which a Redis Cluster routes the call. There all other names of the items are in the
--       same partition; on a single server they need not be
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
  -- The last value of each unpack is the position of the next one.
  at, keys[key_count + 1], args[arg_count + shared + 1] = args[arg_count + shared + 1], nil, nil
  local ok, answer = pcall(run, keys, args)
  if not ok then
    local words = type(answer) == "table" and answer.err or tostring(answer)
    -- An error of a command begins with its code, by which the gateway decides whether to try again; Lua's own have none.
    answer = { err = string.find(words, "^%u+ ") and words or "ERR " .. words }
  end
  replies[#replies + 1] = answer
end
return cjson.encode(replies)
