#!lua flags=no-writes
-- INSPECT: whether a key is valid, its five numbers, and the record of a task. Reads only. The names of the account and of
-- the task's request are built here, so they are not among KEYS; they are in the same partition.
-- The fields of its records stand in src/store/records.ts.
--
-- KEYS  1 key (hash)  2 window (list)  3 slots (set)  4 task (string; only for a poll)
-- ARGV  1 now (ms or empty)  2 tiers  3 account id  4 how old a cached answer may be (ms)
--       5 prefix of the names of requests
-- RETURNS outcome, now, rate limit, remaining, reset (ms), concurrent limit, active, tier, then, unless the key is unknown,
--         the account's status (suspended or closed, empty: active), then
--   known        the key is valid; no task was asked for
--   unknown_key  no such key, revoked or expired; the five numbers are zeros
--   account_suspended  the account is closed
--   not_found    no such task, or another account's
--   task         request id, key id of its creator, fresh (1: the data may be answered from the cache), status,
--                data (JSON), bound at (ms); unless fresh, also maximum age (ms) and upstream as they were fixed by
--                BIND (empty: bound by an earlier release)
--@include clock
--@include key
--@include reply
--@include shared
--@include task
local now = store_now(ARGV[1])
local key = read_key(KEYS[1], now, ARGV[2])
if not key or not key.usable then return reply("unknown_key", now) end
local account = string.match(KEYS[1], "^tg:{p%d+}") .. ":account:" .. key.account_id
local read = redis.call("HMGET", account, "status", "limited")
local status = read[1] or ""
key.shared = read[2] and read_shared(account, read[2], now)
if status == "closed" then return reply("account_suspended", now, key, KEYS[2], KEYS[3], status) end
if not KEYS[4] then return reply("known", now, key, KEYS[2], KEYS[3], status) end

local task = read_task(KEYS[4])
if not task or task.account_id ~= ARGV[3] then return reply("not_found", now, key, KEYS[2], KEYS[3], status) end
local observed_at = tonumber(task.observed_at)
local fresh = (observed_at and observed_at <= now and now - observed_at < tonumber(ARGV[4])) and 1 or 0
local bound_at = tonumber(task.bound_at)
if fresh == 1 then
  return reply("task", now, key, KEYS[2], KEYS[3], status, task.request_id, task.key_id, fresh, task.status, task.data,
    bound_at)
end
local fixed = redis.call("HMGET", ARGV[5] .. task.request_id, "max_age_ms", "upstream")
return reply("task", now, key, KEYS[2], KEYS[3], status, task.request_id, task.key_id, fresh, task.status, task.data,
  bound_at, fixed[1] or "", fixed[2] or "")
