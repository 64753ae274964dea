--@include numbers
-- Notes for ROLLUP that a task ended as completed or failed, that one that had failed then completed after all (unfailed), or that
-- one was made and not charged (uncollected). ROLLUP takes the
-- note away as it counts it. Written twice it is one note, under the later time. `name` is any name of the partition; `number` is
-- when the task was bound (ms), and of an uncollected one its price.
local function note_ended(name, now, request_id, account_id, key_id, endpoint, what, number)
  local note = table.concat({ request_id, what, int(number), account_id, key_id, endpoint }, " ")
  call("ZADD", string.match(name, "^tg:{p%d+}") .. ":ended", int(now), note)
end
