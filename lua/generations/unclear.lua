#!lua flags=allow-oom
-- UNCLEAR: the upstream gave no clear answer to a held request. The request counts among the unknown outcomes of its account until its
-- hold ends, and repeats with its Idempotency-Key are told so at any gateway.
--
-- BOUND  20  one request
-- `answered` is unclear or timed_out. `unknown_max`: how many unknown outcomes an account may have.
-- RETURNS outcome, now
--   noted    then how many unknown outcomes the account has, and until when it makes no further request (ms; 0: it may)
--   missing  the request has no hold any more; nothing happens
--@keys request account unknown idempotency?
--@args now request_id answered unknown_max
--@include request unknown
--@unless_frozen request
local record = read_request(request)
if record.state ~= "held" then return { "missing", now } end
if idempotency and call("HGET", idempotency, "request_id") == request_id then
  call("HSET", idempotency, "unknown", answered)
end
call("SET", request, changed_request(record.text, "held", "unknown", answered))
call("ZADD", unknown, record.due_at, request_id)
local count, blocked_until = block_account(account, unknown, tonumber(unknown_max))
return { "noted", now, count, blocked_until }
