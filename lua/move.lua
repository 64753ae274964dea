#!lua flags=allow-oom
-- MOVE: brings the record of one task from layout 1 to layout 2, with its claim. Only a single server has layout 1, so the
-- names may lie anywhere. Decision 0044.
--
-- BOUND  30  one task
-- KEYS  1 task in layout 1 (string)  2 task (string)  3 claim (string: request id, partition)  4 request (hash)
-- ARGV  1 now (ms or empty)  2 request id in the record when it was looked at
-- RETURNS outcome, now
--   moved     the record is in layout 2, and the request has the claim
--   missing   no such record by now; nothing happens
--   dropped   the request has been collected, and its record goes, too
--   conflict  another request has bound the same task id in layout 2 meanwhile; both tasks are disputed
--@include claim
--@include clock
--@include dispute
--@include task
local now = store_now(ARGV[1])
local request_id, task = ARGV[2], KEYS[2]
local earlier = read_task(KEYS[1])
if not earlier or earlier.request_id ~= request_id then return { "missing", now } end
redis.call("DEL", KEYS[1])
if redis.call("EXISTS", KEYS[4]) == 0 then return { "dropped", now } end

local others = taken_by_other(KEYS[3], request_id, task)
if others then dispute(others, earlier.account_id) end
local kept = read_task(task)
if not kept or kept.request_id == request_id then
  -- Where both are, a gateway that did not know of the migration wrote the one of layout 1 last, but never after the end.
  local text = kept and is_final(kept.status) and kept.text or earlier.text
  local is_disputed = others or earlier.is_disputed or kept and kept.is_disputed
  redis.call("SET", task, (is_disputed and "!" or "") .. string.gsub(text, "^!", ""))
end
return { others and "conflict" or "moved", now }
