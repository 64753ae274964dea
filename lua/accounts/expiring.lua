#!lua flags=allow-oom
-- EXPIRING: tells accounts of their keys that end soon, each once for each end. The names of keys and accounts are built here, so
-- they are not among KEYS; they are in the same partition.
--
-- BOUND  2000  the keys that are asked for
-- `list` is a zset: key id by when its account is told (ms).
-- RETURNS now, how many keys were taken off the list
--@keys list
--@args now most
--@include clock events numbers
--@unless_frozen list
-- A time (ms) as ISO 8601.
local function iso_time(at)
  local year, month, day = date_of(at)
  local ms = at % DAY_MS
  return string.format("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", year, month, day, math.floor(ms / 3600000),
    math.floor(ms / 60000) % 60, math.floor(ms / 1000) % 60, ms % 1000)
end

local tag = string.match(list, "^tg:{p%d+}")
local ids = call("ZRANGEBYSCORE", list, "-inf", int(now), "LIMIT", 0, tonumber(most))
for _, id in ipairs(ids) do
  local key = tag .. ":key:" .. id
  local record = call("HMGET", key, "account_id", "expires_at", "revoked_at", "label")
  local expires_at = tonumber(record[2] or 0)
  if record[1] and not record[3] and expires_at > now then
    local account = tag .. ":account:" .. record[1]
    local data = cjson.encode({ key_id = id, label = record[4] or nil, expires_at = iso_time(expires_at) })
    add_event(account, now, record[1], call("HGET", account, "webhooks"), "key.expiring", id .. "-" .. record[2], data, data)
  end
  call("ZREM", list, id)
end
return { now, #ids }
