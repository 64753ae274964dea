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
