--@include numbers words
-- An index of references, by which operators find accounts, and repeats the entry of the first call:
-- `reference-index:<first two characters>` (hash: the next twelve to "account id@entry"), of the SHA-1 of the reference. That a place
-- names an account proves nothing: other references may share it. At most twenty accounts are kept at one: what more have in
-- common is no name for any. The entries of those beyond them have fields of their own: the place, a space, the account id.
-- src/operations/credits/references.ts reads it.
local INDEXED_MAX = 20

-- `name` is any name of the partition.
local function index_place(name, reference)
  local digest = redis.sha1hex(reference)
  return string.match(name, "^tg:{p%d+}") .. ":reference-index:" .. string.sub(digest, 1, 2), string.sub(digest, 3, 14)
end

-- The accounts at a place except one, as a list; then true if that one is there.
local function indexed_besides(hash, field, account_id)
  local others, is_there = {}, false
  for text in string.gmatch(call("HGET", hash, field) or "", "%S+") do
    if string.match(text, "^[^@]+") == account_id then is_there = true else others[#others + 1] = text end
  end
  return others, is_there
end

-- Lists an account under a reference, with the id of its entry. Where there is no room for it, the entry is kept all the same.
local function index_reference(name, reference, account_id, entry)
  change_words_of_reference("ZADD", name, reference, account_id)
  local hash, field = index_place(name, reference)
  local others, is_there = indexed_besides(hash, field, account_id)
  if is_there then return end
  if #others >= INDEXED_MAX then
    call("HSET", hash, field .. " " .. account_id, entry)
    return
  end
  others[#others + 1] = account_id .. "@" .. entry
  call("HSET", hash, field, table.concat(others, " "))
end

local function unindex_reference(name, reference, account_id)
  change_words_of_reference("ZREM", name, reference, account_id)
  local hash, field = index_place(name, reference)
  call("HDEL", hash, field .. " " .. account_id)
  local others = indexed_besides(hash, field, account_id)
  if #others == 0 then
    call("HDEL", hash, field)
  else
    call("HSET", hash, field, table.concat(others, " "))
  end
end

-- How many references of an account have been forgotten: they are in the archive alone. `name` is that of its checkpoint.
local function count_forgotten(name)
  return tonumber(string.match(call("GET", name) or "", "^[^\n]* forgotten (%d+)") or 0)
end

-- The reply of a change that is made once per reference, if it must not be made: another call has made it, the reference stands for
-- something else, or it may be one of more than `looked_up` that have been forgotten. Else nil.
local function refuse_repeat(references, reference, stands_for, checkpoint, looked_up, available)
  local earlier = call("HGET", references, reference)
  if earlier then return { earlier == stands_for and "duplicate" or "mismatch", int(available) } end
  local forgotten = count_forgotten(checkpoint)
  if forgotten > tonumber(looked_up) then return { "forgotten", int(available), int(forgotten) } end
end
