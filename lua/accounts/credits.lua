#!lua flags=no-writes
-- CREDITS: reads the account as GET /credits shows it, with the limits that are enforced for this key.
--
-- BOUND  800  the entries that are asked for
-- RETURNS outcome, now, rate limit, remaining, reset (ms), concurrent limit, active, tier, then
--   known        the account's status (suspended, empty: active), limits of UTC periods, credits that can be spent, total used, total requests, then the ledger's entries as
--                XRANGE returns them, most recent first; where older ones have left the ledger, then the checkpoint
--   account_suspended  the account is closed: its status
--   unknown_key  no such key, revoked or expired; the five numbers are zeros
--@keys key_name window slots account_name ledger checkpoint
--@args now tiers entries_max
--@include entry limits money numbers reply
-- Up to `most` entries of an account, from its last one back, as XRANGE answers them, and the checkpoint of this name if
-- the ledger has less of them.
local function latest(ledger, last, most, checkpoint)
  local entries = {}
  while last ~= "" and last ~= "-" and #entries < most do
    local entry = call("XRANGE", ledger, last, last)[1]
    if not entry then
      entries[#entries + 1] = call("GET", checkpoint) or nil
      break
    end
    entries[#entries + 1] = entry
    last = read_entry(entry[2]).previous
  end
  return entries
end

local key = read_key(key_name, now, tiers)
if not key or not key.usable then return reply("unknown_key", now) end
local account = call("HMGET", account_name, "money", "status", "limited")
local balance, held, used, requests, last = money_words(account[1])
local status = account[2] or ""
local shared = account[3] and read_shared(account_name, account[3], now)
key.shared = shared
if status == "closed" then return reply("account_suspended", now, key, window, slots, status) end
local values = { status, period_limits(key, shared) }
local function add(value) values[#values + 1] = value end
add(int(balance - held))
add(used)
add(tonumber(requests))
for _, entry in ipairs(latest(ledger, last, tonumber(entries_max), checkpoint)) do add(entry) end
return reply("known", now, key, window, slots, unpack(values))
