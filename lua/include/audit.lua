--@include clock numbers
-- Audit: who changed what. The script that makes a change writes its record, so neither is there without the other.
-- src/operations/access/audit.ts reads the records.
local AUDIT_KEPT_MS = 90 * DAY_MS

-- Who makes the change. `actor` is the request id of the change (may be empty), a space, and who makes it.
local function by_of(actor)
  return string.match(actor, "^%S* (.*)$")
end

-- Writes one record. `name` is any name of the partition; `before` and `after` are tables of field and text, cjson.null
-- where the field is not set. Records that are older than 90 days are removed, about a hundred at a time.
local function write_audit(name, now, actor, action, account_id, target, before, after)
  call("XADD", string.match(name, "^tg:{p%d+}") .. ":audit", "MINID", "~", int(now - AUDIT_KEPT_MS), "*",
    "at", int(now), "by", by_of(actor), "action", action, "account_id", account_id, "target", target,
    "before", cjson.encode(before), "after", cjson.encode(after), "request_id", string.match(actor, "^%S*"))
end
