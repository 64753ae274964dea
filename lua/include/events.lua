--@include deliveries numbers
--@seldom add_event
-- Events that customers are told of. The script that makes one come true calls `add_event`, so that no crash comes between the two.
-- An account without endpoints has no field `webhooks`. For one with ten, in a full store, a script takes up to 550 steps beside its BOUND.

-- Longer data is left out of a message.
local DATA_BYTES_MAX = 20000
-- At these bounds events are dropped and counted: deliveries that wait for one endpoint, and bytes of the events of an
-- account and of a partition.
local WAITING_MAX = 10000
local ACCOUNT_BYTES_MAX = 8 * 1024 * 1024
local PARTITION_BYTES_MAX = 16 * 1024 * 1024

-- The enabled endpoints of an account that want this type of event. `webhooks` is the field of the account.
local function endpoints_for(webhooks, kind)
  local wanted = {}
  for id, events in string.gmatch(webhooks or "", "(%S+):(%S+)") do
    if string.find("," .. events .. ",", "," .. kind .. ",", 1, true) then wanted[#wanted + 1] = id end
  end
  return wanted
end

-- True if an event of so many bytes has no room, even after some ended deliveries of this endpoint are deleted.
local function is_crowded(tag, account_id, endpoint_id, bytes)
  local totals, finished = tag .. ":webhook-totals", name_in(tag, "finished-deliveries", endpoint_id)
  for _ = 1, 3 do
    local used = call("HMGET", totals, " bytes", account_id)
    local is_full = tonumber(used[1] or 0) + bytes > PARTITION_BYTES_MAX
      or tonumber(used[2] or 0) + bytes > ACCOUNT_BYTES_MAX
    local oldest = is_full and call("ZRANGE", finished, 0, 0)[1]
    if not oldest then return is_full end
    remove_delivery(tag, endpoint_id, oldest)
  end
  return true
end

-- Tells the endpoints of an account that want it of an event; again with the same id, nothing happens. `account` is any name
-- of the partition, `webhooks` the account's field. `kind` is the type, such as task.completed; `subject` tells events of one type
-- apart (characters of ids). `data` is the JSON that is sent, `short` what is sent instead if that is too long. With a `url`,
-- that address is told, too. Returns the event's id, nil if nobody is told.
local function add_event(account, now, account_id, webhooks, kind, subject, data, short, url)
  local wanted, callback = endpoints_for(webhooks, kind), callback_of(account_id)
  if url then wanted[#wanted + 1] = callback end
  if #wanted == 0 then return nil end
  local tag = string.match(account, "^tg:{p%d+}")
  local id = "evt_" .. subject .. "_" .. string.gsub(kind, "%W", "_")
  local event = name_in(tag, "event", id)
  if call("EXISTS", event) == 1 then return id end
  if #data > DATA_BYTES_MAX then data = short end
  local text = kind .. " " .. int(now) .. " " .. account_id .. " " .. data
  local bytes = #text + EVENT_BYTES
  local is_kept = false
  for _, endpoint_id in ipairs(wanted) do
    local queue_id = endpoint_id
    if endpoint_id == callback then queue_id = queue_of_address(tag, account_id, url, now) end
    if count_waiting(tag, queue_id) >= WAITING_MAX or (not is_kept and is_crowded(tag, account_id, endpoint_id, bytes)) then
      drop_delivery(tag, endpoint_id, now)
    else
      if not is_kept then
        is_kept = true
        call("HSET", event, "event", text)
        count_bytes(tag .. ":webhook-totals", account_id, bytes)
      end
      if endpoint_id == callback then call("HSET", event, "url", queue_id .. " " .. url) end
      write_delivery(event, endpoint_id, new_delivery(now))
      call("ZADD", name_in(tag, "deliveries", endpoint_id), int(now), id)
      call("ZADD", tag .. ":webhooks-clean", "NX", int(now), endpoint_id)
      queue_delivery(tag, queue_id, id, now, call("HGET", name_in(tag, "webhook", queue_id), "is_slow") == "1")
    end
  end
  return is_kept and id or nil
end
