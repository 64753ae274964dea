-- The beginning of a text, of at most so many bytes and whole characters of UTF-8.
local function text_within(text, bytes_max)
  if #text <= bytes_max then return text end
  local last = bytes_max
  while last > 0 and string.byte(text, last + 1) >= 128 and string.byte(text, last + 1) < 192 do
    last = last - 1
  end
  return string.sub(text, 1, last)
end

-- The beginning of a text; one that was cut ends in an ellipsis.
local function cut_text(text, bytes_max)
  return #text <= bytes_max and text or text_within(text, bytes_max) .. "…"
end

-- An index of words, by which operators find accounts, keys and references: `words` of a partition (zset, all scores 0). For each of
-- the first words of a label, a value of metadata or a reference: the text from there on, a slash, and whose it is ("account id",
-- "account id@key id" or "account id=reference"). In lower case of ASCII; what is neither letter nor digit there becomes a space.
-- src/records/words.ts makes the same.
local WORDS_MAX = 8
local WORDS_OF_REFERENCE_MAX = 4
local WORDS_BYTES_MAX = 40

local function word_places(text, whose, words_max)
  local words, places = {}, {}
  for word in string.gmatch(string.lower(text), "[%w\128-\255]+") do
    words[#words + 1] = word
  end
  for at = 1, math.min(#words, words_max) do
    places[at] = text_within(table.concat(words, " ", at), WORDS_BYTES_MAX) .. "/" .. whose
  end
  return places
end

-- `name` is any name of the partition. `command` is ZADD or ZREM.
local function change_words(command, name, places)
  if #places == 0 then return end
  local members = {}
  for _, place in ipairs(places) do
    if command == "ZADD" then members[#members + 1] = 0 end
    members[#members + 1] = place
  end
  call(command, string.match(name, "^tg:{p%d+}") .. ":words", unpack(members))
end

local function change_words_of_text(command, name, text, whose)
  if type(text) == "string" then change_words(command, name, word_places(text, whose, WORDS_MAX)) end
end

-- A reference `key:<id>` is of the credits that came with a key, which is found by its id.
local function change_words_of_reference(command, name, reference, account_id)
  if string.sub(reference, 1, 4) == "key:" then return end
  change_words(command, name, word_places(reference, account_id .. "=" .. reference, WORDS_OF_REFERENCE_MAX))
end
