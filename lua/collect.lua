#!lua flags=allow-oom
-- COLLECT: forgets a finished or void request after its retention. The ledger keeps what it cost.
--
-- KEYS  1 request (hash)  2 done (zset: request id by ms)  3 task (string; only where there is one)
-- ARGV  1 now (ms or empty)  2 tiers (unused)  3 request id  4 retention (ms)
-- RETURNS outcome
--   collected
--   kept        not at its end, or too young; nothing happens
local now = store_now()
local record = redis.call("HMGET", KEYS[1], "state", "finished_at", "void_at")
local ended_at = tonumber(record[2] or record[3] or 0)
if (record[1] and record[1] ~= "finished" and record[1] ~= "void") or ended_at > now - tonumber(ARGV[4]) then
  return { "kept" }
end
redis.call("DEL", KEYS[1])
redis.call("ZREM", KEYS[2], ARGV[3])
if KEYS[3] then
  local task = read_task(KEYS[3])
  if task and task.request_id == ARGV[3] then redis.call("DEL", KEYS[3]) end
end
return { "collected" }
