#!lua
-- ADMIT: may this generation run? All or nothing: a refusal writes nothing.
--
-- BOUND  200  one request; the window is searched by halves
-- The other names are made here, of the ids and the partition of `key_name`: half of what a caller would send.
-- `price_text` is as in include/price.lua, `not_after` a time (ms). Without an Idempotency-Key, `fingerprint` (of path and body) and
-- `digest` (of account and Idempotency-Key) are empty. `callback`: the customer's callBackUrl, without spaces (empty: none, or it is not relayed). `restrictions`: those of the
-- key that the caller has checked the request against (empty: none).
-- RETURNS outcome, now, rate limit, remaining, reset (ms), concurrent limit, active, tier, then
--   admitted               letters of limits that would have refused it, but are in shadow mode (absent or empty: none; and
--                          when this request id was admitted before), its price (absent: as asked for)
--   stale                  the script ran after not_after; nothing happened
--   void                   this request was voided before its ADMIT ran; nothing happens
--   unknown_key            no such key, revoked or expired, and not a repeat of a request; the five numbers are zeros
--   restricted             the key has other restrictions than the caller has checked; the key's are behind its tier
--   account_suspended      suspended or closed: the account's status
--   replayed               task id, the answer's data as JSON
--   idempotency_mismatch   the Idempotency-Key belongs to another path or body
--   idempotency_in_progress  due (ms), what the first was answered if its outcome is unknown (else empty)
--   rate_limited           ms until one more fits in the window, whose limit it is (key or account)
--   daily_limited          ms until midnight UTC, whose limit it is, that limit, requests of the day
--   outcomes_unknown       ms until the account may make further requests; too many of its requests have an unknown outcome
--   concurrency_limited    whose limit it is, ms until the first slot is free again if all that take one have an unknown
--                          outcome (else 0)
--   spend_capped           credits that the key may spend in a month, credits that it has spent in this one, the
--                          request's price (absent: as asked for)
--   insufficient_credits   credits that can be spent, the request's price (absent: as asked for)
--@keys key_name
--@args now tiers request_id account_id key_id endpoint price_text retention_ms not_after hold_ms fingerprint digest callback restrictions
--@include clock limits money numbers price reply request window
--@unless_frozen key_name

local prefix = prefix_of(key_name, key_id)
local account, request = prefix .. "account:" .. account_id, prefix .. "request:" .. request_id
local window, slots = prefix .. "window:" .. key_id, prefix .. "slots:" .. key_id
local idempotency = digest ~= "" and prefix .. "idempotency:" .. digest

local key = read_key(key_name, now, tiers)
if not key then return reply("unknown_key", now) end
local balance, held, used, requests, last, extras = money_words(call("HGET", account, "money"))
local status, limited, blocked_until, multiplier
if extras ~= "" then
  status, limited, blocked_until, multiplier =
    unpack(call("HMGET", account, "status", "limited", "blocked_until", "price_multiplier"))
end
local price, details = price_at(price_text, multiplier, now)
local shared = limited and read_shared(account, limited, now)
if shared then key.shared = shared end

-- A request that was admitted before is admitted, whatever would refuse it now: its key may have been revoked between the two runs,
-- and the request was made with a good key. The record is only read here: that of a new request is written by a command that fails on
-- an earlier one.
local function refuse(outcome, ...)
  local earlier = read_state(request)
  local kept = earlier and details and { "", read_request(request).price } or {}
  if earlier then return reply(earlier == "void" and "void" or "admitted", now, key, window, slots, unpack(kept)) end
  if outcome == "unknown_key" then return reply(outcome, now) end
  return reply(outcome, now, key, window, slots, ...)
end
if not key.usable then return refuse("unknown_key") end
if (key.restrictions or "") ~= restrictions then return refuse("restricted") end
if status then return refuse("account_suspended", status) end
if now > not_after + 0 then return refuse("stale") end

if idempotency then
  local first = call("HMGET", idempotency, "request_id", "fingerprint", "task_id", "response", "due_at", "unknown")
  if first[1] then
    if first[2] ~= fingerprint then return refuse("idempotency_mismatch") end
    if first[3] then return refuse("replayed", first[3], first[4]) end
    return refuse("idempotency_in_progress", tonumber(first[5]), first[6] or "")
  end
end

if blocked_until and now < tonumber(blocked_until) then
  return refuse("outcomes_unknown", tonumber(blocked_until) - now)
end

local live, length, oldest = read_window(window, key.clock)
local active = call("SCARD", slots)
local refusal, a, b, c, d = refusal_of(key, window, live, slots, active, account, shared, now)
if refusal then return refuse(refusal, a, b, c, d) end
-- A key that replaces another goes on with what that one has spent, and both count together.
local spending, spent = key_name, key.counted_spent
if key.spends_in then
  spending = prefix .. "key:" .. key.spends_in
  local counters = call("HGET", spending, "counters")
  spent = counters and select(2, read_counters(counters))
end
-- Day and month are written together, so the month is only read for the first request of a day. It never goes back.
local is_new_month = not (key.is_same_day and spent)
  and month_of(key.clock) > tonumber(call("HGET", spending, "month") or -1)
spent = is_new_month and 0 or (spent or 0) + 0
if key.monthly_credits then
  key.spent = spent
  if spent + price > tonumber(key.monthly_credits) then
    return refuse("spend_capped", int(key.monthly_credits), int(spent), details and int(price))
  end
end
local available = balance - held
if available < price then return refuse("insufficient_credits", int(available), details and int(price)) end

local clock, due_at = int(key.clock), int(now + hold_ms)
local rest = clock .. " " .. due_at
if callback ~= "" then rest = rest .. " callback=" .. callback end
if details then rest = rest .. " details=" .. encoded(details) end
if shared then rest = rest .. " account_at=" .. shared_mark(shared) end
if idempotency then rest = rest .. " idempotency=" .. digest end
local record = request_text("held", account_id, key_id, endpoint, details and int(price) or price_text, retention_ms, rest)
-- The first write, since it alone may not happen.
if call("SETNX", request, record) == 0 then return refuse("admitted") end
local spent_after = int(spent + price)
-- The limits of this admission are kept: they may have changed when the ledger is verified.
call("HSET", key_name, "counters", count_request(key, key.spends_in and "0" or spent_after) .. " " .. key.limits)
if key.new_terms then call("HSET", key_name, "terms", key.new_terms) end
if key.spends_in then change_counters(spending, SPENT_WORD, spent_after) end
if is_new_month then call("HSET", spending, "month", int(month_of(key.clock))) end
add_to_window(window, clock, live, length)
call("SADD", slots, request_id)
write_money(account, balance, int(held + price), used, int(requests + 1), last, extras)
call("ZADD", prefix .. "due", due_at, request_id)
if shared then
  call("HSET", account, "counters", count_request(shared, "0"))
  add_to_window(shared.window, int(shared.clock), shared.live, shared.length)
  call("SADD", shared.slots, request_id)
  shared.live, shared.oldest, shared.active = shared.live + 1, shared.oldest or shared.clock, shared.active + 1
end
if idempotency then
  call("HSET", idempotency, "request_id", request_id, "fingerprint", fingerprint, "due_at", due_at)
  -- It expires only once the hold has ended: BIND and VOID say when.
  call("PERSIST", idempotency)
end
if key.monthly_credits then key.spent = spent + price end
if details then key.noted = key.noted or "" end
return reply_with("admitted", now, key, live + 1, oldest or key.clock, active + 1, key.noted, details and int(price))
