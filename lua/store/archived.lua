#!lua flags=allow-oom
-- ARCHIVED: the archive has committed a batch. Ended requests are marked, so that COLLECT may delete them. Accounts and keys
-- that have not changed since they were read are no longer noted as changed. Whoever notes a batch must have seen the one that
-- was noted last: otherwise the archive may have lost that one before this one was written. It must have announced the batch,
-- too: otherwise the store has lost the announcement, and perhaps what was read for the batch. The names of the requests are
-- built here, so they are not among KEYS; they are in the same partition.
--
-- BOUND  3000  a batch of the copier
-- `changed` is a hash: account or key to the number of its changes. `newest` (an entry; empty: none) and `batch` (0: none)
-- are what the archive has, `earlier_newest` and `earlier_batch` what was noted last. `looked_until`: the score in `done` up
-- to which requests were looked at (ms). `items`: request id, state that was copied; after `requests_count` of these account
-- or key, the number of its changes that was read.
-- RETURNS outcome, now
--   archived
--   other     the archive was replaced meanwhile; nothing happens
--   unseen    another batch was noted or announced last; nothing happens
--@keys archive changed
--@args now generation requests_prefix newest batch earlier_newest earlier_batch looked_until requests_count items...
--@include request
--@unless_frozen archive
local noted = call("HMGET", archive, "generation", "newest", "batch", "writing")
if noted[1] ~= generation then return { "other", now } end
if (noted[2] or "") ~= earlier_newest or (noted[3] or "0") ~= earlier_batch then return { "unseen", now } end
if noted[4] ~= batch .. " after " .. earlier_batch then return { "unseen", now } end
local requests = 2 * tonumber(requests_count)
for at = 1, requests, 2 do
  local request, state = requests_prefix .. items[at], items[at + 1]
  -- A void request may have been bound since the copy was made: then its copy is out of date.
  local text = call("GET", request)
  if text and string.match(text, "^%S+") == state then
    call("SET", request, changed_request(text, state, "archived", generation .. "/" .. state), "KEEPTTL")
  end
end
for at = requests + 1, #items, 2 do
  if call("HGET", changed, items[at]) == items[at + 1] then call("HDEL", changed, items[at]) end
end
call("HSET", archive, "looked_until", looked_until, "batch", batch)
if newest ~= "" then call("HSET", archive, "newest", newest) end
return { "archived", now }
