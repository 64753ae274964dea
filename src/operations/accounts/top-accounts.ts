import { DAY_MS, dayText } from "../../domain/moments.ts";
import { accountNames, META, partitionOf, spentName } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { type PartitionReads, readsOfMost, type Unread } from "../../redis/partition-reads.ts";
import { storeNowMs } from "../../redis/server-clock.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import { requireOrder } from "../access/operator-values.ts";
import { REFUSAL_DAYS, refusalsOfDay } from "./refusals.ts";
import { compareBytes } from "./sorted-lists.ts";

/** ROLLUP keeps the lists of days so long (lua/include/ranks.lua). */
const SPENDING_DAYS = 31;
/** Of each day and partition that are read: a candidate for the top. */
const CANDIDATES = 100;
/** Lists that are read at a time: about a millisecond of Redis. */
const LISTS_AT_A_TIME = 100;

interface Days {
  /** UTC, both inclusive, such as 2026-10-31. */
  from: string;
  to: string;
}

interface TopAccount {
  accountId: string;
  label: string | null;
  amount: number;
}

interface TopAccounts {
  accounts: TopAccount[];
  source: "archive" | "redis";
  /** Earlier days are not counted, Unix ms; undefined if all that were asked for are. */
  sinceMs: number | undefined;
  /** False if another account may belong to the list. */
  complete: boolean;
  unread: Unread | undefined;
}

/** @throws OperatorError `unavailable` while the archive cannot be used */
export type ArchivedSpenders = (
  days: Days,
  limit: number,
) => Promise<readonly { accountId: string; amount: number }[]>;

/**
 * By what was charged less what was refunded, from Redis for 31 days, earlier from the archive; or by refusals of the last eight days.
 * @throws OperatorError for days in the wrong order
 */
export async function topAccounts(
  nodes: RedisNodes,
  { by, limit, ...period }: { by: "spend" | "refusals"; from?: string; to?: string; limit: number },
  archive?: { spenders: ArchivedSpenders },
): Promise<TopAccounts> {
  const nowMs = await storeNowMs(nodes.ofName(META));
  const today = dayText(nowMs);
  const { from = today, to = from > today ? from : today } = period;
  requireOrder(from, to);
  const kept = by === "spend" ? SPENDING_DAYS : REFUSAL_DAYS;
  const oldest = dayText(nowMs - (kept - 1) * DAY_MS);
  const reads = readsOfMost(nodes);
  if (by === "spend" && from < oldest && archive) {
    const found = await archive.spenders({ from, to }, limit);
    const accounts = await withLabels(nodes, reads, found);
    return { accounts, source: "archive", sinceMs: undefined, complete: true, unread: reads.unread() };
  }
  const days = daysOf({ from: from < oldest ? oldest : from, to: to > today ? today : to });
  const { sums, complete } =
    by === "spend" ? await spending(nodes, reads, days, limit) : await refusals(nodes, days);
  const accounts = await withLabels(nodes, reads, firstOf(sums, limit));
  const sinceMs = from < oldest ? Date.parse(oldest) : undefined;
  return { accounts, source: "redis", sinceMs, complete, unread: reads.unread() };
}

function daysOf({ from, to }: Days): string[] {
  const days: string[] = [];
  for (let atMs = Date.parse(from); atMs <= Date.parse(to); atMs += DAY_MS) days.push(dayText(atMs));
  return days;
}

const firstOf = (sums: ReadonlyMap<string, number>, limit: number) =>
  [...sums]
    .map(([accountId, amount]) => ({ accountId, amount }))
    .filter(({ amount }) => amount > 0)
    .sort((a, b) => b.amount - a.amount || compareBytes(b.accountId, a.accountId))
    .slice(0, limit);

/** An account in none of each day's first places spent less than the last of them: so it is known whether the result is complete. */
async function spending(nodes: RedisNodes, reads: PartitionReads, days: readonly string[], limit: number) {
  const partitions = await partitionsOf(nodes);
  const lists = Array.from({ length: partitions }, (_, partition) =>
    days.map((day) => ({ partition, name: spentName(partition, day) })),
  ).flat();
  /** The most that an account of a partition may have spent which is no candidate. */
  const othersMost = new Array<number>(partitions).fill(0);
  const candidates = new Map<string, number>();
  await inSlices(lists, async (slice) => {
    const pages = await reads.many<string[], (typeof lists)[number]>(slice, (pipe, { name }) =>
      pipe.zrevrange(name, 0, CANDIDATES - 1, "WITHSCORES"),
    );
    for (const [at, { partition }] of slice.entries()) {
      const page = pages[at] ?? [];
      for (let index = 0; index < page.length; index += 2) candidates.set(page[index]!, partition);
      if (page.length === 2 * CANDIDATES) othersMost[partition]! += Math.max(0, Number(page.at(-1)));
    }
  });
  const sums = new Map<string, number>([...candidates.keys()].map((id) => [id, 0]));
  const owned = Map.groupBy(candidates.keys(), (id) => candidates.get(id)!);
  const asked = lists.flatMap((list) => {
    const ids = owned.get(list.partition);
    return ids ? [{ ...list, ids }] : [];
  });
  await inSlices(asked, async (slice) => {
    const scores = await reads.many<(string | null)[], (typeof asked)[number]>(slice, (pipe, { name, ids }) =>
      pipe.zmscore(name, ids),
    );
    for (const [at, { ids }] of slice.entries())
      for (const [index, id] of ids.entries()) sums.set(id, sums.get(id)! + Number(scores[at]?.[index] ?? 0));
  });
  const least = firstOf(sums, limit)[limit - 1]?.amount ?? 0;
  return { sums, complete: othersMost.every((most) => most <= least) };
}

async function inSlices<Item>(
  items: readonly Item[],
  work: (slice: readonly Item[]) => Promise<void>,
): Promise<void> {
  for (let at = 0; at < items.length; at += LISTS_AT_A_TIME)
    await work(items.slice(at, at + LISTS_AT_A_TIME));
}

async function refusals(nodes: RedisNodes, days: readonly string[]) {
  const sums = new Map<string, number>();
  for (const day of days)
    for await (const { accountId, count } of refusalsOfDay(nodes, day))
      sums.set(accountId, (sums.get(accountId) ?? 0) + count);
  return { sums, complete: true };
}

async function withLabels(
  nodes: RedisNodes,
  reads: PartitionReads,
  found: readonly { accountId: string; amount: number }[],
): Promise<TopAccount[]> {
  const partitions = await partitionsOf(nodes);
  const placed = found.map((one) => ({ ...one, partition: partitionOf(one.accountId, partitions) }));
  const labels = await reads.many<string | null, (typeof placed)[number]>(
    placed,
    (pipe, { accountId, partition }) => pipe.hget(accountNames(partition, accountId).account, "label"),
  );
  return found.map((one, at) => ({ ...one, label: labels[at] ?? null }));
}
