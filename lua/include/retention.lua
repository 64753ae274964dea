--@include numbers
-- How long (ms) the record of a request is kept that was certainly not made: far beyond any `not_after` of its ADMIT.
local REFUSED_KEPT_MS = 600000

-- The score in `done` of a request that ends now: the time from which its record may be deleted. One that was restored from the archive has
-- no retention (false): COLLECT finds it at once and postpones it by its caller's.
local function forget_at(now, retention_ms)
  return int(now + tonumber(retention_ms or 0))
end
