--@include numbers
-- The score in `done` of a request that ends now: the time from which its record may be deleted. Requests of an earlier
-- release have no retention (false). COLLECT finds them at once and postpones them by its caller's retention.
local function forget_at(now, retention_ms)
  return int(now + tonumber(retention_ms or 0))
end
