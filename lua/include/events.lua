--@include deliveries numbers
--@seldom add_event
-- Events that customers are told of. The script that makes one come true calls `add_event`, so that no crash comes between the two.
-- An account without endpoints has no field `webhooks`. For one with ten, in a full store, a script takes up to 550 steps beside its BOUND.

-- Longer data is left out of a message.
local DATA_BYTES_MAX = 20000
-- Ended deliveries that give way to one event.
local GIVING_WAY_MAX = 3

-- The enabled endpoints of an account that want this type of event. `webhooks` is the field of the account.
local function endpoints_for(webhooks, kind)
  local wanted = {}
  for id, events in string.gmatch(webhooks or "", "(%S+):(%S+)") do
    if string.find("," .. events .. ",", "," .. kind .. ",", 1, true) then wanted[#wanted + 1] = id end
  end
  return wanted
end

-- Makes ended deliveries of the endpoint, at most `most`, give way to so many bytes. Returns whether there is room, and how many did.
local function make_room(tag, account_id, endpoint_id, bytes, most)
  for given = 0, most do
    if not lacks_room(tag, account_id, bytes, 1) then return true, given end
    local oldest = given < most and call("ZRANGE", name_in(tag, "finished-deliveries", endpoint_id), "0", "0")[1]
    if not oldest then return false, given end
    remove_delivery(tag, endpoint_id, oldest)
  end
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
  local is_kept, giving_way_max = false, GIVING_WAY_MAX
  for _, endpoint_id in ipairs(wanted) do
    local queue_id, bytes = endpoint_id, DELIVERY_BYTES + (is_kept and 0 or #text + EVENT_BYTES)
    if endpoint_id == callback then
      queue_id, bytes = queue_of_address(tag, account_id, url, now), bytes + #url
    end
    local has_room, given = count_waiting(tag, queue_id) < WAITING_MAX, 0
    if has_room then has_room, given = make_room(tag, account_id, endpoint_id, bytes, giving_way_max) end
    giving_way_max = giving_way_max - given
    if has_room then
      if not is_kept then call("HSET", event, "event", text) end
      is_kept = true
      count_bytes(tag, account_id, bytes)
      if endpoint_id == callback then call("HSET", event, "url", queue_id .. " " .. url) end
      write_delivery(event, endpoint_id, new_delivery(now))
      call("ZADD", name_in(tag, "deliveries", endpoint_id), int(now), id)
      call("ZADD", tag .. ":webhooks-clean", "NX", int(now), endpoint_id)
      queue_delivery(tag, queue_id, id, now, call("HGET", name_in(tag, "webhook", queue_id), "is_slow") == "1")
    else
      drop_delivery(tag, endpoint_id, now)
    end
  end
  return is_kept and id or nil
end
