#!lua
-- ACCOUNT: an operator creates an account, or changes its record.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  200  its record
-- KEYS  1 account (hash)  2 accounts of the partition (zset, all scores 0)
-- ARGV  1 now (ms or empty)  2 account id  3 action, as the audit has it: account.create or account.patch
--       4 the record's revisions, with commas (empty: any)  5 who: request id, a space, who
--       6 whether the account may do more than with its earlier status (1 or 0)
--       7.. field, value pairs; an empty value removes the field
-- RETURNS outcome, now
--   created     then the account as HGETALL returns it
--   exists      it is there and should be created; nothing happens
--   changed     then the account
--   unchanged   the record has these values; nothing happens; then the account
--   restricted  it is suspended or closed, and stays so; nothing happens
--   stale       the record has another revision; nothing happens
--   missing     there is no such account; nothing happens
--@include audit
--@include changed
--@include clock
--@include fields
--@include lists
--@include mark
--@include members
--@include numbers
--@include revision
--@include status
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local account, account_id, action = KEYS[1], ARGV[2], ARGV[3]
local creates = action == "account.create"
local record = redis.call("HMGET", account, "balance", "revision")
if creates and record[1] then return { "exists", now } end
if not creates and not record[1] then return { "missing", now } end
if not is_seen(ARGV[4], record[2]) then return { "stale", now } end
local before, after = differing_fields(account, { unpack(ARGV, 7) })
if not creates and not before then return { "unchanged", now, redis.call("HGETALL", account) } end
if before and after.status and ARGV[6] ~= "1" and lifts(before.status, after.status) then return { "restricted", now } end
note_changed(account, "account " .. account_id)
unlist_account(account, account_id)
if creates then
  redis.call("HSET", account, "balance", "0", "held", "0", "total_used", "0", "total_requests", "0",
    "created_at", int(now))
  redis.call("ZADD", KEYS[2], 0, account_id)
end
set_fields(account, after or {})
list_account(account, account_id)
redis.call("HINCRBY", account, "revision", creates and 0 or 1)
mark_limited(account)
before, after = before or {}, after or {}
write_audit(account, now, ARGV[5], action, account_id, account_id, creates and {} or audited(before, after),
  audited(after, before))
return { creates and "created" or "changed", now, redis.call("HGETALL", account) }
