-- True if a record's revision is one of those that a caller has seen, such as `5` or `5,7`; empty: any.
local function is_seen(revisions, revision)
  return revisions == "" or string.find("," .. revisions .. ",", "," .. (revision or "0") .. ",", 1, true) ~= nil
end
