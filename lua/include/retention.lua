--@include numbers
-- The score in `done` of a request that ends now: when its record may be deleted. A request of an earlier release has no
-- retention of its own (false): COLLECT finds it at once, and postpones it by the caller's.
local function forget_at(now, retention_ms)
  return int(now + tonumber(retention_ms or 0))
end
