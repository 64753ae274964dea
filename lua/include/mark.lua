-- Says in an account's record whether it has limits over all its keys (include/shared.lua), after they or its revision have changed.
-- Without limits it keeps no records of its own; UNLINK frees a large one beside what Redis serves.
local function mark_limited(account)
  local f = call("HMGET", account, "rate_limit", "max_concurrent", "daily_limit", "limited", "revision")
  local has_limits = f[1] or f[2] or f[3]
  if has_limits and not f[4] then
    call("HSET", account, "limited", f[5])
  elseif f[4] and not has_limits then
    local tag, id = string.match(account, "^(tg:{p%d+}):account:(.*)$")
    call("HDEL", account, "limited", "clock_ms", "day", "day_count")
    call("UNLINK", tag .. ":account-window:" .. id, tag .. ":account-slots:" .. id)
  end
end
