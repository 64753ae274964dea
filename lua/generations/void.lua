#!lua flags=allow-oom
-- VOID: ends a hold without a charge. Hold, slot, the day's count and what the key spent are given back, the window
-- entry stays.
-- Reasons: `refused` (the upstream refused the request or could not be reached), `unsent` (nothing went upstream under this
-- hold: no connection was free, or its ADMIT got no reply), `due` (its due time has passed), `released` (by an operator).
-- After the last two a task may still come, and a late BIND may charge it. `unsent` also removes the window entry and the
-- count of requests, and leaves a tombstone that an ADMIT of the same request meets if it runs later. Decision 0009.
--
-- BOUND  250  one request; the window is searched by halves
-- `actor` is of an operator: request id, a space, and who; else empty.
-- RETURNS outcome, now, rate limit, remaining, reset (ms), concurrent limit, active, tier
--   void       void now; or before, then "before"
--   bound      the request has a task; nothing happens
--   not_due    reason `due` before the due time; nothing happens
--   missing    no such request; `unsent` leaves the tombstone
--@keys request account key_name window slots due done idempotency?
--@args now tiers request_id reason tombstone_ms actor
--@include audit limits money numbers reply request spent unknown
--@unless_frozen request
local key = read_key(key_name, now, tiers)

local limited = call("HGET", account, "limited")
local shared = limited and read_shared(account, limited, now)
if key then key.shared = shared end
if shared then read_shared_use(shared) end

local function forget_admission(admitted_at, account_at)
  call("LREM", window, 1, admitted_at)
  if account_at then call("LREM", shared.window, 1, account_at) end
  add_to_money(account, 0, -1)
end

local record = read_request(request)
local state, account_at = record.state, shared_stamp(shared, record.account_at)
if not state then
  call("ZREM", due, request_id)
  if reason == "unsent" then
    call("SET", request, request_text("void", "", "", "", "", "", "  reason=" .. reason), "PX", tombstone_ms)
  end
  return reply("missing", now, key, window, slots)
end
if state == "void" then
  -- It was void for another reason before: what only `unsent` removes is removed now.
  if reason == "unsent" and record.reason ~= "unsent" then
    forget_admission(record.admitted_at, account_at)
    call("SET", request, changed_request(record.text, state, "reason", reason))
  end
  call("ZREM", due, request_id)
  return reply("void", now, key, window, slots, "before")
end
if state ~= "held" then return reply("bound", now, key, window, slots) end
if reason == "due" and now < tonumber(record.due_at) then return reply("not_due", now, key, window, slots) end

local spent = key and read_spent(key_name)
local first = idempotency and call("HMGET", idempotency, "request_id", "void_until", "first_void_id", "fingerprint")
-- While a Redis Cluster migrates the slot key by key, a command on a name that has moved fails, and earlier writes stay. The
-- VOID is then sent again, by the sweeper as long as `due` lists the request. So the writes that can run twice come before
-- the account's. After that only the removal from `due` can fail: all other names were read above.
call("SREM", slots, request_id)
if shared then call("SREM", shared.slots, request_id) end
if record.unknown then remove_unknown(account, request_id) end
-- No charge can follow, so the record only tells a repeated call that it was void.
local is_certain = reason == "refused" or reason == "unsent"
local retention_ms = is_certain and int(math.min(REFUSED_KEPT_MS, tonumber(record.retention_ms))) or record.retention_ms
call("ZADD", done, forget_at(now, retention_ms), request_id)
if reason == "unsent" then forget_admission(record.admitted_at, account_at) end
add_to_money(account, -record.price, 0)
local first_void_id, fingerprint
if key then
  change_counts(key_name, record.admitted_at, -1)
  add_spent(spent, record.admitted_at, -tonumber(record.price))
end
if account_at then change_counts(account, account_at, -1) end
if first and (first[1] or request_id) == request_id then
  -- The Idempotency-Key is free for a retry. If the outcome is unknown, a BIND may come while the record exists; until then
  -- the entry must name the request that is charged under this key.
  local is_unknown = reason == "due" or reason == "released"
  local void_until = math.max(tonumber(first[2] or 0), is_unknown and tonumber(forget_at(now, record.retention_ms)) or 0)
  if void_until > now then
    call("HSET", idempotency, "void_until", int(void_until))
    call("HDEL", idempotency, "request_id", "fingerprint", "due_at", "unknown")
    call("PEXPIRE", idempotency, int(void_until - now))
    if is_unknown then
      -- A step of the clock may expire the entry all the same. BIND knows by this id whether it still is the same one.
      first_void_id, fingerprint = first[3] or request_id, encoded(first[4] or "")
      call("HSET", idempotency, "first_void_id", first_void_id)
    end
  else
    call("DEL", idempotency)
  end
end
call("SET", request, changed_request(record.text, "void", "reason", reason, "void_at", int(now),
  "retention_ms", is_certain and retention_ms, "first_void_id", first_void_id or record.first_void_id,
  "fingerprint", fingerprint))
if actor ~= "" then
  write_audit(request, now, actor, "task.release", string.match(account, ":account:(.*)$"), request_id,
    { state = "held" }, { state = "void", credits = record.price })
end
call("ZREM", due, request_id)
return reply("void", now, key, window, slots)
