import type { Redis } from "ioredis";
import { kindOf } from "../records/ledger-entries.ts";
import { accountNames, partitionNames, partitionOf } from "../records/names.ts";
import { moneyOf } from "../records/packed-fields.ts";
import type { RequestRecord } from "../records/records.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { type PartitionReads, readsOfMost, type Unread } from "../redis/partition-reads.ts";
import { partitionsOf, placeOfAccount } from "../redis/store-facts.ts";
import { exportLedger } from "./export.ts";
import { createStatement, type Statement } from "./statement-sums.ts";
import {
  createUsageTotals,
  dayStartMs,
  monthBounds,
  runSeconds,
  type UsageRow,
  type UsageSelection,
} from "./usage.ts";
import { readRequests } from "./verify-run.ts";

const REQUESTS_PAGE = 500;

interface Reach {
  entriesSinceMs: number | undefined;
}

export type FromRedis<T> = T & { reach: Reach; unread: Unread | undefined };

/** Usage from ledger entries in Redis, and tasks until they are collected (`tasks.retention`). @throws OperatorError */
export async function usageInRedis(
  nodes: RedisNodes,
  selection: UsageSelection,
): Promise<FromRedis<{ rows: UsageRow[] }>> {
  const reads = readsOfMost(nodes);
  const totals = createUsageTotals(selection);
  const { reach, entriesOf } = followReach(nodes, reads);
  const { accountId, from } = selection;
  for await (const entry of entriesOf(accountId, from === undefined ? 0 : dayStartMs(from))) {
    const kind = kindOf(entry);
    if (kind === "charge") totals.add(entry, { requests: 1, credits: -entry.amount });
    if (kind === "refund") totals.add(entry, { refunds: entry.amount });
  }
  const partitions = await partitionsOf(nodes);
  for (let partition = 0; partition < partitions; partition++) {
    if (accountId !== undefined && partition !== partitionOf(accountId, partitions)) continue;
    for await (const ended of reads.pages(partition, (redis) => endedTasks(redis, partition)))
      for (const { status, seconds, ...place } of ended) totals.add(place, { [status]: 1, seconds });
  }
  return { rows: totals.rows(), reach: reach(), unread: reads.unread() };
}

/** If entries of the month have left Redis, the opening is the balance after them. */
export async function statementInRedis(
  nodes: RedisNodes,
  accountId: string,
  month: string,
): Promise<FromRedis<{ statement: Statement }>> {
  const reads = readsOfMost(nodes);
  const { first, next } = monthBounds(month);
  const [firstMs, nextMs] = [dayStartMs(first), dayStartMs(next)];
  const { reach, entriesOf } = followReach(nodes, reads);
  const statement = createStatement({ fromMs: firstMs, toMs: nextMs });
  let balance: number | undefined;
  for await (const entry of entriesOf(accountId, firstMs)) {
    balance = entry.balanceAfter;
    statement.add(entry);
  }
  balance ??= await storedBalance(nodes, reads, accountId);
  return { statement: statement.end(balance), reach: reach(), unread: reads.unread() };
}

/** Notes whether an account's first entry names an earlier one. */
function followReach(nodes: RedisNodes, reads: PartitionReads) {
  let sinceMs: number | undefined;
  return {
    reach: (): Reach => ({ entriesSinceMs: sinceMs }),
    /** Some earlier entries, too: ids never step back, the clock may. */
    async *entriesOf(accountId: string | undefined, fromMs: number) {
      const selection = { accountId, sinceMs: fromMs };
      for await (const page of exportLedger(nodes, new Map(), selection, reads)) yield* page.entries;
      const partitions = await partitionsOf(nodes);
      for (let partition = 0; partition < partitions; partition++) {
        if (accountId !== undefined && partition !== partitionOf(accountId, partitions)) continue;
        const startMs = await reads.at(partition, (redis) => beginningOf(redis, partition));
        if (startMs !== undefined) sinceMs = Math.max(sinceMs ?? 0, startMs);
      }
    },
  };
}

async function beginningOf(redis: Redis, partition: number): Promise<number | undefined> {
  const { ledger } = partitionNames(partition);
  if ((await redis.exists(ledger)) === 0) return undefined;
  const info = (await redis.xinfo("STREAM", ledger)) as unknown[];
  const field = (name: string): unknown => info[info.indexOf(name) + 1];
  if (Number(field("entries-added")) === Number(field("length"))) return undefined;
  const [first] = await redis.xrange(ledger, "-", "+", "COUNT", 1);
  const id = first?.[0] ?? String(field("last-generated-id"));
  return Number(id.split("-")[0]) + (first ? 0 : 1);
}

async function storedBalance(nodes: RedisNodes, reads: PartitionReads, accountId: string): Promise<number> {
  const { partition } = await placeOfAccount(nodes, accountId);
  const { account } = accountNames(partition, accountId);
  return Number(moneyOf(await reads.at(partition, (redis) => redis.hget(account, "money"))).balance ?? 0);
}

interface EndedTask {
  atMs: number;
  accountId: string;
  endpoint: string;
  keyId: string;
  status: "completed" | "failed";
  seconds: number;
}

async function* endedTasks(redis: Redis, partition: number): AsyncGenerator<EndedTask[]> {
  const { done } = partitionNames(partition);
  // Pages by score: collecting does not move later ones.
  let after = { score: "-inf", times: 0 };
  for (;;) {
    const { score, times } = after;
    const page = await redis.zrange(
      done,
      score,
      "+inf",
      "BYSCORE",
      "LIMIT",
      times,
      REQUESTS_PAGE,
      "WITHSCORES",
    );
    if (page.length === 0) return;
    const ids = page.filter((_, at) => at % 2 === 0);
    const last = page.at(-1) ?? "";
    const same = page.filter((value, at) => at % 2 === 1 && value === last).length;
    after = { score: last, times: last === score ? times + same : same };
    yield (await readRequests(redis, partition, ids)).flatMap((record) => endedTask(record) ?? []);
  }
}

/** Undefined for a request whose task has not ended. */
function endedTask(record: RequestRecord): EndedTask | undefined {
  const { status, account_id: accountId = "", endpoint = "", key_id: keyId = "", bound_at: boundAt } = record;
  if (status !== "completed" && status !== "failed") return undefined;
  const atMs = Number(record.finished_at);
  const seconds = status === "completed" && boundAt ? runSeconds(Number(boundAt), atMs) : 0;
  return { status, atMs, accountId, endpoint, keyId, seconds };
}
