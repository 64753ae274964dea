#!lua flags=allow-oom
-- TRIM: removes the oldest entries of a partition's ledger that the archive has, up to the first one that is too young or is
-- the charge of a task that has not ended, or that ROLLUP has not counted. Their accounts' checkpoints go on from them in the same step. It also forgets
-- references of grants that have left the ledger long ago. The names of checkpoints, requests and references are built here,
-- so they are not among KEYS; they are in the same partition. Decision 0051.
-- The fields of its records stand in src/records/records.ts.
--
-- BOUND  3000  the entries and the references that are asked for
-- KEYS  1 ledger (stream)  2 trimmed (hash)  3 grants (zset: account id, reference by the ms of the grant)
--       4 rolled (hash; none before the first ROLLUP, which then begins where the ledger does)
-- ARGV  1 now (ms or empty)  2 the newest entry that the archive has, which stays: its id  3 its account id
--       4 its balance after  5 its request id (empty: none)  6 its reference (empty: none)
--       7 how old an entry must be (ms)  8 maximum number of entries, and of references
--       9 how old a reference must be (ms)
--       and the prefixes of the names of:  10 checkpoints  11 requests  12 references
-- RETURNS outcome, now
--   trimmed  entries removed, references forgotten, whether there may be more (1 or 0)
--   unknown  the ledger does not have that entry, so another ledger was archived; nothing happens
--   broken   the oldest entry, which is not the next one after its account's checkpoint; nothing happens
--@include checkpoint
--@include clock
--@include cut
--@include numbers
--@include references
--@unless_frozen KEYS[1]
local now = store_now(ARGV[1])
local ledger, most = KEYS[1], tonumber(ARGV[8])

local rolled = redis.call("HGET", KEYS[4], "entry")

local function fields_of(entry)
  local fields = {}
  for at = 1, #entry[2], 2 do fields[entry[2][at]] = entry[2][at + 1] end
  return fields
end

local newest = redis.call("XRANGE", ledger, ARGV[2], ARGV[2])[1]
local found = newest and fields_of(newest) or {}
if found.account_id ~= ARGV[3] or found.balance_after ~= ARGV[4] or (found.request_id or "") ~= ARGV[5]
  or (found.reference or "") ~= ARGV[6] then
  return { "unknown", now }
end

local checkpoints = {}
local function checkpoint_of(account_id)
  checkpoints[account_id] = checkpoints[account_id] or read_checkpoint(ARGV[10] .. account_id)
  return checkpoints[account_id]
end

local removed, cut, cut_at, grants, charges, refunds = 0, nil, 0, {}, {}, {}
for _, one in ipairs(redis.call("XRANGE", ledger, "-", "(" .. ARGV[2], "COUNT", most)) do
  local id, entry = one[1], fields_of(one)
  if rolled and is_later(id, rolled) then break end
  if tonumber(entry.at) > now - tonumber(ARGV[7]) then break end
  local request = entry.request_id and ARGV[11] .. entry.request_id
  local state = request and redis.call("HGET", request, "state")
  if state == "bound" then break end
  if not add_to_checkpoint(checkpoint_of(entry.account_id), id, entry) then
    if removed == 0 then return { "broken", now, id } end
    break
  end
  -- After a step of the clock, an earlier entry may be younger than a later one.
  removed, cut, cut_at = removed + 1, id, math.max(cut_at, tonumber(entry.at))
  if state and entry.type == "consume" then charges[request] = id end
  if state and entry.reason == "refund" then refunds[request] = id end
  if entry.reference then grants[entry.account_id .. " " .. entry.reference] = entry.at end
end

local old = redis.call("ZRANGE", KEYS[3], "-inf", int(now - tonumber(ARGV[9])), "BYSCORE", "LIMIT", 0, most)
for _, grant in ipairs(old) do
  local account_id, reference = string.match(grant, "^(%S+) (.*)$")
  local amount = redis.call("HGET", ARGV[12] .. account_id, reference)
  if amount then
    local checkpoint = checkpoint_of(account_id)
    checkpoint.forgotten = checkpoint.forgotten + 1
    checkpoint.forgotten_credits = checkpoint.forgotten_credits + (tonumber(amount) or 0)
    redis.call("HDEL", ARGV[12] .. account_id, reference)
    unindex_reference(KEYS[1], reference, account_id)
  end
  redis.call("ZREM", KEYS[3], grant)
end

for account_id, checkpoint in pairs(checkpoints) do
  if checkpoint.entry ~= "" then write_checkpoint(ARGV[10] .. account_id, checkpoint) end
end
-- Of a task that ended a while ago, the record may still be there: it proves charge and refund instead of the ledger.
for request, id in pairs(charges) do redis.call("HSET", request, "trimmed_charge", id) end
for request, id in pairs(refunds) do redis.call("HSET", request, "trimmed_refund", id) end
for grant, at in pairs(grants) do redis.call("ZADD", KEYS[3], at, grant) end
if cut then
  cut_at = math.max(cut_at, tonumber(redis.call("HGET", KEYS[2], "at") or 0))
  redis.call("HSET", KEYS[2], "last_entry", cut, "at", int(cut_at))
  redis.call("HINCRBY", KEYS[2], "entries", removed)
  redis.call("XTRIM", ledger, "MINID", "=", redis.call("XRANGE", ledger, "(" .. cut, "+", "COUNT", 1)[1][1])
end
return { "trimmed", now, removed, #old, (removed == most or #old == most) and 1 or 0 }
