import type { Redis } from "ioredis";
import { kindOf } from "../records/ledger-entries.ts";
import { partitionNames, partitionOf } from "../records/names.ts";
import type { RequestRecord } from "../records/records.ts";
import { readsOfMost, type Unread } from "../redis/partition-reads.ts";
import { membersOf, pairsOf } from "../redis/pipelines.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import { exportLedger } from "./export.ts";
import {
  createUsageTotals,
  dayStartMs,
  runSeconds,
  type UsagePlace,
  type UsageRow,
  type UsageSelection,
} from "./usage.ts";
import { readRequests } from "./verify-run.ts";

const REQUESTS_PAGE = 500;

interface UsageInRedis {
  rows: UsageRow[];
  /** From when on all ledger entries are counted, Unix ms; undefined: none has left. */
  entriesSinceMs: number | undefined;
  unread: Unread | undefined;
}

/** Counts ledger entries of any age, and tasks until they are collected, independent of the roll-up. @throws OperatorError */
export async function usageInRedis(nodes: RedisNodes, selection: UsageSelection): Promise<UsageInRedis> {
  const { accountId, from } = selection;
  const reads = readsOfMost(nodes);
  const totals = createUsageTotals(selection);
  // Some earlier entries, too: ids never step back, the clock may.
  const entries = { accountId, sinceMs: from === undefined ? 0 : dayStartMs(from) };
  for await (const page of exportLedger(nodes, new Map(), entries, reads))
    for (const entry of page.entries) {
      const kind = kindOf(entry);
      if (kind === "charge") totals.add(entry, { requests: 1, credits: -entry.amount });
      if (kind === "refund") totals.add(entry, { refunds: entry.amount });
    }
  let entriesSinceMs: number | undefined;
  const partitions = await partitionsOf(nodes);
  for (let partition = 0; partition < partitions; partition++) {
    if (accountId !== undefined && partition !== partitionOf(accountId, partitions)) continue;
    const startMs = await reads.at(partition, (redis) => beginningOf(redis, partition));
    if (startMs !== undefined) entriesSinceMs = Math.max(entriesSinceMs ?? 0, startMs);
    for await (const ended of reads.pages(partition, (redis) => endedTasks(redis, partition)))
      for (const { status, seconds, ...place } of ended) totals.add(place, { [status]: 1, seconds });
  }
  return { rows: totals.rows(), entriesSinceMs, unread: reads.unread() };
}

/** When a ledger's first entry was made, if earlier ones have left. */
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

interface EndedTask extends UsagePlace {
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
    const last = page.at(-1) ?? "";
    const same = pairsOf(page).filter(([, value]) => value === last).length;
    after = { score: last, times: last === score ? times + same : same };
    yield (await readRequests(redis, partition, membersOf(page))).flatMap(
      (record) => endedTask(record) ?? [],
    );
  }
}

function endedTask(record: RequestRecord): EndedTask | undefined {
  const { status, account_id: accountId = "", endpoint = "", key_id: keyId = "", bound_at: boundAt } = record;
  if (status !== "completed" && status !== "failed") return undefined;
  const atMs = Number(record.finished_at);
  const seconds = status === "completed" && boundAt ? runSeconds(Number(boundAt), atMs) : 0;
  return { status, atMs, accountId, endpoint, keyId, seconds };
}
