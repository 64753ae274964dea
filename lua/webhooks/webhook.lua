#!lua flags=allow-oom
-- WEBHOOK: an operator registers an endpoint of an account, changes it, or deletes it.
--
-- BOUND  600  its record, and the account's endpoints
-- `action` is webhook.create, webhook.patch, webhook.rotate_secret, webhook.reseal or webhook.delete, as the audit has
-- it; `revisions` those of the
-- record that the caller has seen, with commas (empty: any). `actor` is the request id, a space, and who. `most_text` is how many an account may
-- have, `overlap_ms` how long the secrets before go on to sign. `fields` are field, value pairs; an empty value removes
-- the field.
-- RETURNS outcome, now
--   created     then the endpoint as HGETALL returns it
--   changed     then the endpoint
--   unchanged   the record has these values; nothing happens; then the endpoint
--   deleted     CLEAN-DELIVERIES removes what waits
--   full        the account has as many as it may; nothing happens
--   closed      the account is closed, and the action neither deletes nor reseals; nothing happens
--   stale       the record has another revision; nothing happens
--   missing     there is no such endpoint, or account; nothing happens
--@keys account endpoint webhooks
--@args now account_id endpoint_id action revisions actor most_text overlap_ms fields...
--@include audit changes deliveries endpoints numbers words
--@unless_frozen account
local URL_BYTES_MAX = 400
-- Secrets that sign beside the present one, newest first.
local EARLIER_SECRETS_MAX = 4
local tag = string.match(account, "^tg:{p%d+}")

-- The audit keeps no secrets, and the beginning of a long address.
local function audited_endpoint(changes)
  local kept = {}
  for field, value in pairs(changes) do
    if not string.find(field, "secret") and field ~= "previous_until" then
      kept[field] = type(value) == "string" and cut_text(value, URL_BYTES_MAX) or value
    end
  end
  return kept
end

-- In the audit, and for the archive, which keeps an account's endpoints with it.
local function note(before, after)
  note_changed(account, "account " .. account_id)
  write_audit(account, now, actor, action, account_id, endpoint_id, audited_endpoint(before), audited_endpoint(after))
end

if action == "webhook.create" then
  local owner = call("HMGET", account, "money", "status")
  if not owner[1] then return { "missing", now } end
  if owner[2] == "closed" then return { "closed", now } end
  if call("ZCARD", webhooks) >= tonumber(most_text) then return { "full", now } end
  local _, after = differing_fields(endpoint, fields)
  set_fields(endpoint, after)
  call("HSET", endpoint, "account_id", account_id, "status", "enabled", "created_at", int(now))
  call("ZADD", webhooks, int(now), endpoint_id)
  call("ZADD", tag .. ":webhook-endpoints", int(now), endpoint_id)
  list_endpoints(tag, account_id)
  note({}, after)
  return { "created", now, call("HGETALL", endpoint) }
end

local record = call("HMGET", endpoint, "account_id", "status", "revision", "is_slow", "secret")
if record[1] ~= account_id or record[2] == "deleted" then return { "missing", now } end
if action ~= "webhook.delete" and action ~= "webhook.reseal" and call("HGET", account, "status") == "closed" then
  return { "closed", now }
end
if not is_seen(revisions, record[3]) then return { "stale", now } end
if action == "webhook.delete" then
  call("HSET", endpoint, "status", "deleted")
  call("HDEL", endpoint, "secret", "previous_secret", "previous_until")
  call("ZREM", webhooks, endpoint_id)
  call("ZREM", tag .. ":webhook-endpoints", endpoint_id)
  call("ZADD", tag .. ":webhooks-clean", int(now), endpoint_id)
  schedule_endpoint(tag, endpoint_id, now, false, false, true)
  list_endpoints(tag, account_id)
  note({ status = record[2] }, { status = "deleted" })
  return { "deleted", now }
end

local before, after = differing_fields(endpoint, fields)
if not before then return { "unchanged", now, call("HGETALL", endpoint) } end
if action == "webhook.rotate_secret" then
  local signing, kept = call("HMGET", endpoint, "previous_secret", "previous_until"), { record[5] }
  if signing[2] and tonumber(signing[2]) > now then
    for sealed in string.gmatch(signing[1], "%S+") do kept[#kept + 1] = sealed end
  end
  after.previous_secret = table.concat(kept, " ", 1, math.min(#kept, EARLIER_SECRETS_MAX))
  after.previous_until = int(now + tonumber(overlap_ms))
end
if after.status == "enabled" or after.url then
  after.failing_since, after.failures, after.is_slow = cjson.null, cjson.null, cjson.null
end
if after.status == "enabled" then
  after.disabled_reason = cjson.null
elseif after.status == "disabled" then
  after.disabled_reason = "operator"
end
set_fields(endpoint, after)
call("HINCRBY", endpoint, "revision", 1)
local is_enabled = (after.status or record[2]) == "enabled"
if after.status then schedule_endpoint(tag, endpoint_id, now, is_enabled, false, true) end
list_endpoints(tag, account_id)
for _, field in ipairs({ "failing_since", "failures", "is_slow" }) do after[field] = nil end
note(before, after)
return { "changed", now, call("HGETALL", endpoint) }
