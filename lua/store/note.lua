#!lua flags=allow-oom
-- NOTE: notes in the archive's record what a copier is about to do, and accounts and keys as changed. Redis may be out of memory:
-- nothing leaves it that is not copied.
--
-- BOUND  1100  up to 500 accounts and keys of a page
-- `changed` is a hash: account or key to the number of its changes. `generation` is what the record must have (empty: any).
-- `items`: field, value; after `values_count` of them accounts and keys that have changed.
-- RETURNS outcome, now
--   noted
--   other  the record has another generation; nothing happens
--@keys archive changed
--@args now generation values_count items...
--@unless_frozen archive
if generation ~= "" and call("HGET", archive, "generation") ~= generation then return { "other", now } end
local values = tonumber(values_count)
if values > 0 then call("HSET", archive, unpack(items, 1, values)) end
for at = values + 1, #items do call("HINCRBY", changed, items[at], 1) end
return { "noted", now }
