--@include numbers
-- The score in `done` of a request that ends now: when it may be forgotten. A request of an earlier release has no
-- retention of its own (false): COLLECT finds it at once and puts it off by the caller's.
local function forget_at(now, retention_ms)
  return int(now + tonumber(retention_ms or 0))
end
