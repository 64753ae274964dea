--@include events
-- Tells an account that it is suspended or closed (`account.suspended`). `revision` is that of its record, which tells this time apart.
local function tell_restricted(account, now, account_id, status, revision)
  local data = '{"status":"' .. status .. '"}'
  local subject = account_id .. "-" .. (tonumber(revision or 0) + 1)
  add_event(account, now, account_id, call("HGET", account, "webhooks"), "account.suspended", subject, data, data)
end
