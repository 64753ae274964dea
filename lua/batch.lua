-- Appended by src/redis/script-runner.ts to every script that serves requests: the script's body becomes the function
-- `run`, which is called for each item of a batch. An item that fails does not affect the others. The batch is packed into
-- one ARGV string: a string for each name and number costs the gateway more (decision 0020).
--
-- KEYS  1 a name of the first item, by which a Redis Cluster routes the call. There all other names of the items are in the
--       same partition; on a single server they need not be
-- ARGV  1 now (ms or empty), then the tiers where the script takes them, and last the items: for each its KEYS and its ARGV
--       beyond now and tiers, each with a zero byte behind it. `WORDS` unpacks one item; `run` moves `place` on to the next.
-- RETURNS JSON: for each item its reply, or {"err": what went wrong}. A reply is a table, or JSON already
local items, replies, now, tiers = ARGV[#ARGV], {}, store_now(ARGV[1]), ARGV[2]
while place <= #items do
  local ok, answer = pcall(run, now, tiers, struct.unpack(WORDS, items, place))
  if not ok then
    local words = type(answer) == "table" and answer.err or tostring(answer)
    -- An error of a command begins with its code, by which the gateway decides whether to try again; Lua's own have none.
    answer = { err = string.find(words, "^%u+ ") and words or "ERR " .. words }
  end
  replies[#replies + 1] = type(answer) == "table" and cjson.encode(answer) or answer
end
return "[" .. table.concat(replies, ",") .. "]"
