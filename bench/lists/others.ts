import type { Redis } from "ioredis";
import { accountUsage } from "../../src/ledger/account-usage.ts";
import { allUsage } from "../../src/ledger/all-usage.ts";
import { salesOf } from "../../src/ledger/sales.ts";
import { pageStatements } from "../../src/ledger/statements.ts";
import { pageAudit } from "../../src/operations/access/audit.ts";
import { listKeys } from "../../src/operations/accounts/account-lists.ts";
import { pageRefusalsOfKey } from "../../src/operations/accounts/refusal-log.ts";
import { pageTimeline } from "../../src/operations/accounts/timeline.ts";
import { topAccounts } from "../../src/operations/accounts/top-accounts.ts";

import { pageAllTransactions, pageTransactions } from "../../src/operations/credits/transactions.ts";
import { listTasks } from "../../src/operations/tasks/task-lists.ts";
import { listDeliveries } from "../../src/operations/webhooks/deliveries.ts";
import {
  accountNames,
  endpointNames,
  eventName,
  partitionNames,
  partitionOf,
  refusalLogNames,
  soldName,
  usageName,
} from "../../src/records/names.ts";
import { oneNode, type RedisNodes } from "../../src/redis/store-facts.ts";
import { LIMIT, type ListPage, PARTITIONS } from "./measure.ts";

// The other lists, of an account that has as much as an account may have, or more than any has had.

const ACCOUNT = "acc-0000001";
const ENDPOINT = "gen2/text-to-video";
const KEYS = 10_000;
const CHARGES = 100_000;
const RECORDS = 2000;
const DELIVERIES = 10_000;
const FIELDS = 20_000;
const USAGE_ROWS = 1000;
const SOLD = 600;
const STEP = 1000;
const SECOND_MS = 1000;

/** Charges of the account, a second apart: their entries, and their requests. ARGV: tag, account, key, endpoint, from, to, first time (ms). */
const CHARGE = `
local tag, account, key, endpoint = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local name = tag .. ":account:" .. account
local last = string.match(redis.call("HGET", name, "money"), "^%S+ %S+ %S+ %S+ (%S+)")
if last == "-" then last = "" end
for n = tonumber(ARGV[5]), tonumber(ARGV[6]) do
  local at = string.format("%d", ARGV[7] + n * 1000)
  local id = string.format("request-%d", n)
  redis.call("XADD", tag .. ":ledger", at .. "-0", "entry", table.concat({ "consume", account, key, endpoint, "-1", at,
    string.format("%d", 200000 - n), last, id, "task-" .. n }, " "))
  last = at .. "-0"
  local state = n % 4 == 0 and "bound " or "finished "
  redis.call("SET", tag .. ":request:" .. id, state .. account .. " " .. key .. " " .. endpoint .. " 1 600000 " .. at .. " " .. at
    .. " task_id=task-" .. n .. " bound_at=" .. at .. (state == "bound " and "" or " status=completed finished_at=" .. at))
  redis.call("ZADD", state == "bound " and tag .. ":due" or tag .. ":done", state == "bound " and string.format("%d", 1e15 + at) or at, id)
end
redis.call("HSET", name, "money", "100000 0 100000 100000 " .. last .. " +")`;

const AUDIT = `
for n = 1, tonumber(ARGV[1]) do
  redis.call("XADD", KEYS[1], string.format("%d-0", ARGV[2] + n * 1000), "at", string.format("%d", ARGV[2] + n * 1000), "by", "tok_" .. n % 7 .. " shop",
    "action", n % 2 == 0 and "key.change" or "account.change", "account_id", ARGV[3], "target", ARGV[3],
    "before", '{"label":"one"}', "after", '{"label":"two"}', "request_id", "req")
end`;

const startMs = Date.now() - CHARGES * SECOND_MS - 60_000;

/** @returns the busy account and what it has */
export async function buildOthers(redis: Redis) {
  const partition = partitionOf(ACCOUNT, PARTITIONS);
  const { account, keys } = accountNames(partition, ACCOUNT);
  const tag = account.slice(0, account.indexOf("}") + 1);
  const keyIds = Array.from({ length: KEYS }, (_, at) => `key_${String(at).padStart(6, "0")}`);
  const pipe = redis.pipeline();
  for (const [at, keyId] of keyIds.entries()) {
    const record = { account_id: ACCOUNT, tier: "standard", sha256: keyId, created_at: String(startMs + at) };
    pipe.hset(`${tag}:key:${keyId}`, record).zadd(keys, startMs + at, keyId);
  }
  const endpointId = "we_busy";
  const { endpoint, deliveries } = endpointNames(partition, endpointId);
  pipe.hset(endpoint, {
    account_id: ACCOUNT,
    url: "https://example.com",
    events: "task.completed",
    status: "active",
  });
  for (let at = 0; at < DELIVERIES; at++) {
    const event = `evt_${at}`;
    const delivery = `${at % 9 === 0 ? "failed" : "delivered"} 1 1 ${startMs + at} 0 ${startMs + at} 5 200 ok`;
    pipe.zadd(deliveries, startMs + at, event);
    pipe.hset(eventName(partition, event), {
      event: `task.completed ${startMs + at} ${ACCOUNT} {}`,
      [endpointId]: delivery,
    });
  }
  const month = new Date().toISOString().slice(0, 7);
  for (let at = 0; at < FIELDS; at++)
    pipe.hset(
      usageName(partition, ACCOUNT, month),
      `01 ${ENDPOINT} ${keyIds[at % KEYS]}${at >= KEYS ? "x" : ""}`,
      "9 90",
    );
  for (let part = 0; part < PARTITIONS; part++) {
    for (let at = 0; at < SOLD / 3; at++)
      for (const what of ["grants", "credits", "paid"])
        pipe.hset(soldName(part, month), `${what} purchase USD package-${at}`, String(at));
    pipe.eval(AUDIT, 1, partitionNames(part).audit, RECORDS, startMs, ACCOUNT);
  }
  const { log } = refusalLogNames(partition, keyIds[0]!);
  for (let at = 0; at < 1000; at++)
    pipe.lpush(
      log,
      `${Date.now() - at * SECOND_MS} ${at % 2 === 0 ? "rate_limited" : "concurrency_limited"} 20 20 7 req_${at} mine_${at}`,
    );
  await pipe.exec();
  for (let from = 1; from <= CHARGES; from += STEP)
    await redis.eval(CHARGE, 0, tag, ACCOUNT, keyIds[0]!, ENDPOINT, from, from + STEP - 1, startMs);
  return { partition, keyId: keyIds[0]!, endpointId, month };
}

interface Page {
  next?: string | undefined;
}

/** Pages of a list, one behind the other, until this many were read. */
const PAGES = 4;
async function* pagesOf<Result extends Page>(
  name: string,
  filter: string,
  page: (cursor: string | undefined) => Promise<Result>,
  rowsOf: (result: Result) => readonly unknown[],
): AsyncGenerator<ListPage> {
  let cursor: string | undefined;
  for (let at = 1; at <= PAGES; at++) {
    const here = cursor;
    yield { name, filter, place: `p. ${at}`, read: async () => rowsOf(await page(here)).length };
    cursor = (await page(here)).next;
    if (cursor === undefined) return;
  }
}

type Busy = Awaited<ReturnType<typeof buildOthers>>;

const TIMES = {
  all: {},
  "to the middle": { toMs: startMs + (CHARGES / 2) * SECOND_MS },
  "to the first": { toMs: startMs + 50 * SECOND_MS },
};

export async function* otherPages(redis: Redis, busy: Busy): AsyncGenerator<ListPage> {
  const nodes = oneNode(redis);
  for (const [words, time] of Object.entries(TIMES)) {
    yield* taskPages(nodes, words, time);
    yield* moneyPages(nodes, words, time);
    yield* auditPages(nodes, words, time);
  }
  yield* accountPages(nodes, busy);
  yield* sumPages(nodes, busy);
}

type Time = { toMs?: number };

async function* taskPages(nodes: RedisNodes, words: string, time: Time): AsyncGenerator<ListPage> {
  for (const status of [undefined, "processing", "completed", "failed", "void"] as const)
    yield* pagesOf(
      "tasks",
      `${words} ${status ?? ""}`,
      (cursor) => listTasks(nodes, ACCOUNT, { ...time, status, cursor, limit: LIMIT }),
      ({ tasks }) => tasks,
    );
}

async function* moneyPages(nodes: RedisNodes, words: string, time: Time): AsyncGenerator<ListPage> {
  for (const type of [undefined, "consume", "recharge"] as const) {
    const query = { ...time, type, limit: LIMIT };
    const filter = `${words} ${type ?? ""}`;
    yield* pagesOf(
      "transactions",
      filter,
      (cursor) => pageTransactions(nodes, ACCOUNT, { ...query, cursor }),
      ({ entries }) => entries,
    );
    yield* pagesOf(
      "transactions of all",
      filter,
      (cursor) => pageAllTransactions(nodes, { ...query, cursor }),
      ({ entries }) => entries,
    );
  }
}

const AUDIT_FILTERS = [
  {},
  { by: "tok_3" },
  { action: "key.revoke" },
  { accountId: ACCOUNT },
  { accountId: "nobody" },
];

async function* auditPages(nodes: RedisNodes, words: string, time: Time): AsyncGenerator<ListPage> {
  for (const filter of AUDIT_FILTERS)
    yield* pagesOf(
      "audit",
      `${words} ${JSON.stringify(filter)}`,
      (cursor) => pageAudit(nodes, { ...time, ...filter, cursor, limit: LIMIT }),
      ({ records }) => records,
    );
  for (const hasCharges of [true, false])
    yield* pagesOf(
      "timeline",
      `${words} ${hasCharges ? "with" : "without"} charges`,
      (cursor) =>
        pageTimeline(nodes, ACCOUNT, { ...time, hasCharges, hasLedger: true, cursor, limit: LIMIT }),
      ({ events }) => events,
    );
}

async function* accountPages(
  nodes: RedisNodes,
  { partition, keyId, endpointId }: Busy,
): AsyncGenerator<ListPage> {
  yield* pagesOf(
    "keys",
    "",
    (cursor) => listKeys(nodes, ACCOUNT, { cursor, limit: LIMIT }),
    ({ keys }) => keys,
  );
  for (const outcome of [undefined, "rate_limited", "spend_capped"])
    yield* pagesOf(
      "refusals of a key",
      outcome ?? "",
      (cursor) => pageRefusalsOfKey(nodes, { keyId, accountId: ACCOUNT }, { outcome, cursor, limit: LIMIT }),
      ({ refusals }) => refusals,
    );
  for (const status of [undefined, "failed", "waiting"] as const)
    yield* pagesOf(
      "deliveries",
      status ?? "",
      (cursor) =>
        listDeliveries(
          nodes,
          { endpointId, accountId: ACCOUNT, partition },
          { status, cursor, limit: LIMIT },
        ),
      ({ deliveries }) => deliveries,
    );
}

async function* sumPages(nodes: RedisNodes, { month }: Busy): AsyncGenerator<ListPage> {
  const one = (name: string, filter: string, read: () => Promise<readonly unknown[]>): ListPage => ({
    ...{ name, filter, place: "whole" },
    read: async () => (await read()).length,
  });
  for (const by of [["day"], ["day", "endpoint", "key"], ["endpoint"], ["key"]] as const)
    yield* pagesOf(
      "usage",
      by.join(),
      (after) => accountUsage(nodes, { accountId: ACCOUNT, by, after, limit: USAGE_ROWS }),
      ({ rows }) => rows,
    );
  const byEndpoint = { by: ["day", "endpoint"], limit: LIMIT } as const;
  yield one("usage of all", "day,endpoint", async () => (await allUsage(nodes, byEndpoint)).rows);
  yield* pagesOf(
    "usage of all",
    "account,day",
    (cursor) => allUsage(nodes, { by: ["account", "day"], cursor, limit: LIMIT }),
    ({ rows }) => rows,
  );
  yield* pagesOf(
    "statements",
    "",
    (cursor) => pageStatements(nodes, { month, cursor, limit: LIMIT }, undefined),
    ({ statements }) => statements,
  );
  yield one("sales", "", async () => (await salesOf(nodes, month)).sales);
  const from = new Date(Date.now() - 6 * 86_400_000).toISOString().slice(0, 10);
  for (const by of ["spend", "refusals"] as const)
    yield one(
      "top accounts",
      by,
      async () => (await topAccounts(nodes, { by, from, limit: LIMIT })).accounts,
    );
}
