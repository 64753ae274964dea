#!lua flags=allow-oom
-- MAINTENANCE: an operator begins or ends maintenance, in which gateways refuse generations and uploads.
--
-- BOUND  50  its record
-- `actor` is the request id, a space, and who. `fields` are field, value pairs; an empty value removes the field.
-- RETURNS outcome, now
--   changed
--   unchanged  the record has these values; nothing happens
--@keys maintenance
--@args now actor fields...
--@include audit changes numbers
--@unless_frozen maintenance
local before, after = differing_fields(maintenance, fields)
if not before then return { "unchanged", now } end
set_fields(maintenance, after)
if call("HEXISTS", maintenance, "on") == 1 then call("HSETNX", maintenance, "since", int(now)) end
write_audit(maintenance, now, actor, "maintenance.set", "", "", before, after)
return { "changed", now }
