--@include numbers
-- Open requests of a partition by when they are due (`due`, zset): a hold by when it ends (ms), a task by when the sweeper may poll it
-- (ms) and TASKS_FROM, so that all holds come before all tasks, and BIND moves a request by one command. src/records/names.ts
-- has the same number.
local TASKS_FROM = 1000000000000000

local function task_score(at)
  return int(TASKS_FROM + at)
end
