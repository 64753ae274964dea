#!lua flags=no-writes
-- HOLDING: what an account holds, and what its holds add up to that are in `due` and have a slot, at one instant. For accounts
-- that SNAPSHOT reads in slices. The names of requests and slots are built here, so they are not among KEYS; they are in the same
-- partition.
-- Decision 0064.
--
-- BOUND  1250  the holds of the partition that are asked for
-- `holds_max` is of the partition.
-- RETURNS outcome, now
--   read      credits that the account holds, credits of its holds
--   too_many  there are more holds than that; nothing was read
--@keys account due
--@args now account_id holds_max slots_prefix requests_prefix
--@include due money numbers request
local before_tasks = "(" .. int(TASKS_FROM)
if call("ZCOUNT", due, "-inf", before_tasks) > tonumber(holds_max) then return { "too_many", now } end
local credits = 0
for _, id in ipairs(call("ZRANGEBYSCORE", due, "-inf", before_tasks)) do
  local record = read_request(requests_prefix .. id)
  if record.account_id == account_id and record.state == "held"
    and call("SISMEMBER", slots_prefix .. (record.key_id or ""), id) == 1 then
    credits = credits + tonumber(record.price or 0)
  end
end
local _, held = money_words(call("HGET", account, "money"))
return { "read", now, held, int(credits) }
