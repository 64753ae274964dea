--@include numbers
-- How long (ms) the record of a request is kept that was certainly not made: far beyond any `not_after` of its ADMIT.
local REFUSED_KEPT_MS = 600000

-- The score in `done` of a request that ends now: the time from which its record may be deleted.
local function forget_at(now, retention_ms)
  return int(now + tonumber(retention_ms))
end
