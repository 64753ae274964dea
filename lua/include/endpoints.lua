--@include audit changes deliveries money
-- Webhook endpoints of an account. Its field `webhooks` has those that are enabled, each with the events that it wants, so that
-- the script that ends a task reads nothing more. Whoever changes an endpoint calls `list_endpoints` afterwards.
local function list_endpoints(tag, account_id)
  local account, listed = name_in(tag, "account", account_id), {}
  for _, id in ipairs(call("ZRANGE", name_in(tag, "webhooks", account_id), 0, -1)) do
    local record = call("HMGET", name_in(tag, "webhook", id), "status", "events")
    if record[1] == "enabled" then listed[#listed + 1] = id .. ":" .. record[2] end
  end
  if #listed > 0 then
    call("HSET", account, "webhooks", table.concat(listed, " "))
  else
    call("HDEL", account, "webhooks")
  end
  mark_extras(account)
end

-- Disables an endpoint: its deliveries wait until it is enabled again.
local function disable_endpoint(endpoint, endpoint_id, account_id, now, reason, actor)
  call("HSET", endpoint, "status", "disabled", "disabled_reason", reason)
  call("HINCRBY", endpoint, "revision", 1)
  list_endpoints(string.match(endpoint, "^tg:{p%d+}"), account_id)
  note_changed(endpoint, "account " .. account_id)
  write_audit(endpoint, now, actor, "webhook.disable", account_id, endpoint_id, { status = "enabled" },
    { status = "disabled", disabled_reason = reason })
end
