#!lua flags=allow-oom
-- TRIM: removes the oldest entries of a partition's ledger that the archive has, up to the first one that is too young or is
-- the charge of a task that has not ended, or that ROLLUP has not counted. Their accounts' checkpoints go on from them in the same step. It also forgets
-- references of grants that have left the ledger long ago. The names of checkpoints, requests and references are built here,
-- so they are not among KEYS; they are in the same partition. Decision 0050.
--
-- BOUND  3000  the entries and the references that are asked for
-- `rolled_name` is not there before the first ROLLUP, which then begins where the ledger does. `newest_id` is the newest
-- entry that the archive has, which stays; `newest_balance` is after it, `newest_request` and `newest_reference` may be
-- empty. `kept_ms`: how old an entry must be, `references_ms` a reference. `most_text` is of entries, and of references.
-- RETURNS outcome, now
--   trimmed  entries removed, references forgotten, whether there may be more (1 or 0)
--   unknown  the ledger does not have that entry, so another ledger was archived; nothing happens
--   broken   the oldest entry, which is not the next one after its account's checkpoint; nothing happens
--@keys ledger trimmed grants_name rolled_name
--@args now newest_id newest_account newest_balance newest_request newest_reference kept_ms most_text references_ms checkpoints_prefix requests_prefix references_prefix
--@include checkpoint entry numbers references request
--@unless_frozen ledger
local most = tonumber(most_text)

local rolled = call("HGET", rolled_name, "entry")

local newest = call("XRANGE", ledger, newest_id, newest_id)[1]
local found = newest and read_entry(newest[2]) or {}
if found.account_id ~= newest_account or found.balance_after ~= newest_balance or (found.request_id or "") ~= newest_request
  or (found.reference or "") ~= newest_reference then
  return { "unknown", now }
end

local checkpoints = {}
local function checkpoint_of(account_id)
  checkpoints[account_id] = checkpoints[account_id] or read_checkpoint(checkpoints_prefix .. account_id)
  return checkpoints[account_id]
end

local removed, cut, cut_at, grants, charges, refunds = 0, nil, 0, {}, {}, {}
for _, one in ipairs(call("XRANGE", ledger, "-", "(" .. newest_id, "COUNT", most)) do
  local id, entry = one[1], read_entry(one[2])
  if rolled and is_later(id, rolled) then break end
  if tonumber(entry.at) > now - tonumber(kept_ms) then break end
  local request = (entry.request_id or "") ~= "" and requests_prefix .. entry.request_id
  local state = request and read_state(request)
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

local old = call("ZRANGE", grants_name, "-inf", int(now - tonumber(references_ms)), "BYSCORE", "LIMIT", 0, most)
for _, grant in ipairs(old) do
  local account_id, reference = string.match(grant, "^(%S+) (.*)$")
  local amount = call("HGET", references_prefix .. account_id, reference)
  if amount then
    local checkpoint = checkpoint_of(account_id)
    checkpoint.forgotten = checkpoint.forgotten + 1
    checkpoint.forgotten_credits = checkpoint.forgotten_credits + (tonumber(amount) or 0)
    call("HDEL", references_prefix .. account_id, reference)
    unindex_reference(ledger, reference, account_id)
  end
  call("ZREM", grants_name, grant)
end

for account_id, checkpoint in pairs(checkpoints) do
  if checkpoint.entry ~= "" then write_checkpoint(checkpoints_prefix .. account_id, checkpoint) end
end
-- Of a task that ended a while ago, the record may still be there: it proves charge and refund instead of the ledger.
local function note_trimmed(entries, field)
  for request, id in pairs(entries) do
    local text = call("GET", request)
    call("SET", request, changed_request(text, string.match(text, "^%S+"), field, id), "KEEPTTL")
  end
end
note_trimmed(charges, "trimmed_charge")
note_trimmed(refunds, "trimmed_refund")
for grant, at in pairs(grants) do call("ZADD", grants_name, at, grant) end
if cut then
  cut_at = math.max(cut_at, tonumber(call("HGET", trimmed, "at") or 0))
  call("HSET", trimmed, "last_entry", cut, "at", int(cut_at))
  call("HINCRBY", trimmed, "entries", removed)
  call("XTRIM", ledger, "MINID", "=", call("XRANGE", ledger, "(" .. cut, "+", "COUNT", 1)[1][1])
end
return { "trimmed", now, removed, #old, (removed == most or #old == most) and 1 or 0 }
