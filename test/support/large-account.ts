import type { Redis } from "ioredis";
import { accountNames, partitionNames, partitionOf } from "../../src/records/names.ts";

/** Keys, or tasks, that are written in one call. */
const AT_ONCE = 1000;

/**
 * Writes keys of an account, each with tasks that are held or bound, as ADMIT and BIND leave them: some seconds for 100,000.
 * ARGV: tag, account id, first number, last number, tasks per key, how many of the tasks are held, first task of the key.
 */
const WRITE = `
local tag, account_id, tasks, held = ARGV[1], ARGV[2], tonumber(ARGV[5]), tonumber(ARGV[6])
local account = tag .. ":account:" .. account_id
local t = redis.call("TIME")
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function text(n) return string.format("%d", n) end
local balance, holding, used, requests, last, extras =
  redis.call("HGET", account, "money"):match("^(%S+) (%S+) (%S+) (%S+) (%S+)(.*)$")
local limited = redis.call("HEXISTS", account, "limited") == 1
for n = tonumber(ARGV[3]), tonumber(ARGV[4]) do
  local key_id = account_id .. "-key-" .. text(n)
  local key, slots, window = tag .. ":key:" .. key_id, tag .. ":slots:" .. key_id, tag .. ":window:" .. key_id
  local many = text(tonumber(ARGV[7]) + tasks)
  redis.call("HSET", key, "account_id", account_id, "tier", "standard", "sha256", key_id, "created_at", text(now),
    "counters", text(now) .. " 0 " .. text(math.floor(now / 86400000)) .. (" " .. many):rep(4))
  redis.call("ZADD", tag .. ":keys:" .. account_id, text(now), key_id)
  for task = tonumber(ARGV[7]) + 1, tonumber(ARGV[7]) + tasks do
    local id = key_id .. "-request-" .. text(task)
    local is_held = (n + task) % 1000 < held
    local record = (is_held and "held " or "bound ") .. account_id .. " " .. key_id .. " /api/v1/gen2/text-to-video 10 600000 "
      .. text(now) .. " " .. text(now + 600000)
    if not is_held then record = record .. " task_id=task-" .. id .. " bound_at=" .. text(now) end
    redis.call("SET", tag .. ":request:" .. id, record)
    redis.call("SADD", slots, id)
    if limited then redis.call("SADD", tag .. ":account-slots:" .. account_id, id) end
    redis.call("LPUSH", window, text(now))
    if is_held then
      holding = holding + 10
      redis.call("ZADD", tag .. ":due", text(now + 600000), id)
    else
      balance, used = balance - 10, used + 10
      redis.call("ZADD", tag .. ":due", text(1000000000000000 + now + 600000), id)
      last = redis.call("XADD", tag .. ":ledger", "*", "account_id", account_id, "type", "consume", "amount", "-10",
        "balance_after", text(balance), "endpoint", "/api/v1/gen2/text-to-video", "reason", "", "task_id", "task-" .. id,
        "at", text(now), "previous", last, "request_id", id, "key_id", key_id)
    end
  end
end
redis.call("HSET", account, "money", text(balance) .. " " .. text(holding) .. " " .. text(used) .. " " .. requests .. " " .. last
  .. extras)`;

/** Begins the account with credits for all that follows. */
const BEGIN = `
local account = ARGV[1] .. ":account:" .. ARGV[2]
local id = redis.call("XADD", ARGV[1] .. ":ledger", "*", "account_id", ARGV[2], "type", "recharge", "amount", ARGV[3],
  "balance_after", ARGV[3], "endpoint", "", "reason", "", "task_id", "", "at", "1", "previous", "", "reference", "all")
redis.call("HSET", account, "money", ARGV[3] .. " 0 0 0 " .. id, "created_at", "1")
redis.call("HSET", ARGV[1] .. ":references:" .. ARGV[2], "all", ARGV[3])
redis.call("ZADD", ARGV[1] .. ":accounts", 0, ARGV[2])
redis.call("ZADD", ARGV[1] .. ":by-balance", 0, ARGV[2])
redis.call("ZADD", ARGV[1] .. ":words", 0, "all/" .. ARGV[2] .. "=all")`;

/** Counts of a large account. */
export interface LargeAccount {
  keys: number;
  /** Of each key. */
  tasks: number;
  /** Of a thousand tasks; the others are bound. */
  held?: number;
}

/** An account as large as wanted, with a ledger that is right. */
export async function givenLargeAccount(
  redis: Redis,
  accountId: string,
  partitions: number,
  { keys, tasks, held = 10 }: LargeAccount,
) {
  const partition = partitionOf(accountId, partitions);
  const { account } = accountNames(partition, accountId);
  const tag = account.slice(0, account.indexOf("}") + 1);
  await redis.eval(BEGIN, 0, tag, accountId, 10 * keys * tasks + 1_000_000);
  if (keys >= tasks) {
    for (let first = 1; first <= keys; first += AT_ONCE)
      await redis.eval(WRITE, 0, tag, accountId, first, Math.min(keys, first + AT_ONCE - 1), tasks, held, 0);
  } else {
    for (let key = 1; key <= keys; key++)
      for (let task = 0; task < tasks; task += AT_ONCE)
        await redis.eval(WRITE, 0, tag, accountId, key, key, Math.min(AT_ONCE, tasks - task), held, task);
  }
  const keyId = (number: number): string => `${accountId}-key-${number}`;
  const requestId = (key: number, task: number): string => `${keyId(key)}-request-${task}`;
  return { accountId, partition, keyId, requestId, ...partitionNames(partition) };
}
