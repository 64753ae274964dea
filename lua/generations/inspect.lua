#!lua flags=no-writes
-- INSPECT: whether a key is valid, its five numbers, and the record of a task. Reads only. The name of the task's request
-- is built here, so it is not among KEYS; it is in the same partition.
--
-- BOUND  150  one key and one task; the window is searched by halves
-- `task_name` is only given for a poll. `fresh_ms`: how old a cached answer may be.
-- RETURNS outcome, now, rate limit, remaining, reset (ms), concurrent limit, active, tier, then, unless the key is unknown,
--         the account's status (suspended or closed, empty: active), then
--   known        the key is valid; no task was asked for
--   unknown_key  no such key, revoked or expired; the five numbers are zeros
--   account_suspended  the account is closed
--   not_found    no such task, or another account's
--   task         request id, key id of its creator, fresh (1: the data may be answered from the cache), status,
--                data (JSON), bound at (ms); unless fresh, also maximum age (ms) and upstream as they were fixed by
--                BIND (empty: restored)
--@keys key_name window slots account_name task_name?
--@args now tiers fresh_ms
--@include limits reply request task
local key = read_key(key_name, now, tiers)
if not key or not key.usable then return reply("unknown_key", now) end
local account = call("HMGET", account_name, "status", "limited")
local status = account[1] or ""
key.shared = account[2] and read_shared(account_name, account[2], now)
if status == "closed" then return reply("account_suspended", now, key, window, slots, status) end
if not task_name then return reply("known", now, key, window, slots, status) end

local task = read_task(task_name)
if not task or ":account:" .. task.account_id ~= string.match(account_name, ":account:.*$") then return reply("not_found", now, key, window, slots, status) end
local observed_at = tonumber(task.observed_at)
local fresh = (observed_at and observed_at <= now and now - observed_at < tonumber(fresh_ms)) and 1 or 0
local bound_at = tonumber(task.bound_at)
if fresh == 1 then
  return reply("task", now, key, window, slots, status, task.request_id, task.key_id, fresh, task.status, task.data,
    bound_at)
end
local request = string.match(key_name, "^tg:{p%d+}") .. ":request:" .. task.request_id
local fixed = read_request(request)
return reply("task", now, key, window, slots, status, task.request_id, task.key_id, fresh, task.status, task.data,
  bound_at, fixed.max_age_ms or "", fixed.upstream or "")
