#!lua flags=allow-oom
-- SUSPEND: an operator suspends or closes an account.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  200  its record
-- KEYS  1 account (hash)
-- ARGV  1 now (ms or empty)  2 account id  3 suspended or closed  4 the record's revisions, with commas (empty: any)
--       5 whether it may do more than before: suspended, if it is closed (1 or 0)  6 who: request id, a space, who
-- RETURNS outcome, now
--   changed      then the account as HGETALL returns it
--   unchanged    the record has this status; nothing happens; then the account
--   restricted   it is closed, and stays so; nothing happens
--   stale        the record has another revision; nothing happens
--   missing      there is no such account; nothing happens
--@include audit
--@include changed
--@include clock
--@include lists
--@include revision
--@include status
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local account, account_id, status = KEYS[1], ARGV[2], ARGV[3]
local record = redis.call("HMGET", account, "balance", "revision", "status")
if not record[1] then return { "missing", now } end
if not is_seen(ARGV[4], record[2]) then return { "stale", now } end
if record[3] == status then return { "unchanged", now, redis.call("HGETALL", account) } end
if ARGV[5] ~= "1" and lifts(record[3], status) then return { "restricted", now } end
note_changed(account, "account " .. account_id)
unlist_account(account, account_id)
redis.call("HSET", account, "status", status)
list_account(account, account_id)
redis.call("HINCRBY", account, "revision", 1)
write_audit(account, now, ARGV[6], "account.patch", account_id, account_id, { status = record[3] or cjson.null },
  { status = status })
return { "changed", now, redis.call("HGETALL", account) }
