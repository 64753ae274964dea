#!lua flags=allow-oom
-- COLLECT: deletes the record of a finished or void request after its retention. The retention is fixed at admission, so
-- every gateway applies the same one, and it outlasts any late BIND. The ledger keeps the charge. The account keeps the
-- latest due time of its deleted records but for those that the upstream refused or never got: after a step of the clock, BIND reads it
-- to refuse what may have been charged (decision 0014). The account's name is built here, so it is not among KEYS; it is in the same partition.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  50  one request
-- KEYS  1 request (hash)  2 done (zset: request id by the ms when it may be forgotten)
--       3 task (string; only where there is one)  4 claim (string: request id, partition; not on a cluster)
-- ARGV  1 now (ms or empty)  2 request id  3 retention (ms) of a record that was restored
--       4 prefix of the names of accounts  5 name of the archive's record (hash)
-- RETURNS outcome
--   collected
--   kept        open, or ended too recently; postponed in `done` until its retention has passed
--   unarchived  the store has an archive that has not got this request yet; it stays first in `done`
--   missing     no such record: another collector was first
--@include clock
--@include numbers
--@include owner
--@include task
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local record = redis.call("HMGET", KEYS[1], "state", "finished_at", "void_at", "retention_ms", "account_id",
  "due_at", "archived", "reason")
if record[1] then
  local is_open = record[1] ~= "finished" and record[1] ~= "void"
  local ended_at = is_open and now or tonumber(record[2] or record[3] or 0)
  local kept_until = ended_at + tonumber(record[4] or ARGV[3])
  if is_open or kept_until > now then
    redis.call("ZADD", KEYS[2], "XX", int(kept_until), ARGV[2])
    return { "kept" }
  end
  local generation = redis.call("HGET", ARGV[5], "generation")
  if generation and record[7] ~= generation .. " " .. record[1] then return { "unarchived" } end
  local account, due_at = ARGV[4] .. (record[5] or ""), record[6]
  local collected_until = redis.call("HGET", account, "collected_until")
  local is_uncharged = record[1] == "void" and (record[8] == "refused" or record[8] == "unsent")
  if due_at and not is_uncharged and tonumber(due_at) > tonumber(collected_until or 0) then
    redis.call("HSET", account, "collected_until", due_at)
  end
end
redis.call("DEL", KEYS[1])
redis.call("ZREM", KEYS[2], ARGV[2])
if KEYS[3] then
  local task = read_task(KEYS[3])
  if task and task.request_id == ARGV[2] then redis.call("DEL", KEYS[3]) end
end
local owner = KEYS[4] and redis.call("GET", KEYS[4])
if owner and read_owner(owner) == ARGV[2] then redis.call("DEL", KEYS[4]) end
return { record[1] and "collected" or "missing" }
