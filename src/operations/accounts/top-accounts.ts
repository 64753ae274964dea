import { DAY_MS, dayText } from "../../domain/moments.ts";
import { accountNames, META, partitionOf, spentName } from "../../records/names.ts";
import { type PartitionReads, readsOfMost, type Unread } from "../../redis/partition-reads.ts";
import { membersOf } from "../../redis/pipelines.ts";
import { storeNowMs } from "../../redis/server-info.ts";
import { partitionsOf, type RedisNodes } from "../../redis/store-facts.ts";
import { requireOrder } from "../access/operator-values.ts";
import { archivedUntilMs, type LostUntilMs } from "../credits/archive-lag.ts";
import { REFUSAL_DAYS, refusalsOfDay } from "./refusals.ts";
import { compareBytes } from "./sorted-lists.ts";

/** ROLLUP keeps the lists of days so long (lua/include/ranks.lua). */
const SPENDING_DAYS = 31;
/** Of each day and partition that are read: candidates for the top, first and at most. */
const CANDIDATES_FIRST = 4;
const CANDIDATES_MAX = 100;
/** Scores of candidates: behind as many it goes no deeper. */
const SCORES_MAX = 30_000;
/** Members that are read at a time: less than a millisecond of Redis. */
const MEMBERS_AT_A_TIME = 1000;

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
  archive?: { spenders: ArchivedSpenders; lostUntilMs: LostUntilMs },
): Promise<TopAccounts> {
  const nowMs = await storeNowMs(nodes.ofName(META));
  const today = dayText(nowMs);
  const { from = today, to = from > today ? from : today } = period;
  requireOrder(from, to);
  const kept = by === "spend" ? SPENDING_DAYS : REFUSAL_DAYS;
  const oldest = dayText(nowMs - (kept - 1) * DAY_MS);
  const reads = readsOfMost(nodes);
  if (by === "spend" && from < oldest && archive) {
    const endMs = Date.parse(to) + DAY_MS;
    const lostMs = (await archive.lostUntilMs(endMs)) ?? 0;
    const complete = (await archivedUntilMs(nodes, endMs)) === undefined;
    const accounts = await withLabels(nodes, reads, await archive.spenders({ from, to }, limit));
    const sinceMs = lostMs >= Date.parse(from) ? lostMs + 1 : undefined;
    return { accounts, source: "archive", sinceMs, complete, unread: reads.unread() };
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

/**
 * An account in none of each day's first places spent less than the last of them: so it is known whether the result is complete, and in
 * which partitions to read on.
 */
async function spending(nodes: RedisNodes, reads: PartitionReads, days: readonly string[], limit: number) {
  let open = Array.from({ length: await partitionsOf(nodes) }, (_, partition) => partition);
  const sums = new Map<string, number>();
  let scoresLeft = SCORES_MAX;
  for (let depth = CANDIDATES_FIRST; ; depth = Math.min(4 * depth, CANDIDATES_MAX)) {
    const { candidates, othersMost } = await firstOfDays(reads, open, days, depth);
    const added = candidates.map((ids) => ids.filter((id) => !sums.has(id)));
    for (const id of added.flat()) sums.set(id, 0);
    const wanted = open.flatMap((partition, at) =>
      added[at]!.length === 0
        ? []
        : days.map((day) => ({ partition, name: spentName(partition, day), ids: added[at]! })),
    );
    for (const slice of slicesOf(wanted, ({ ids }) => ids.length)) {
      const scores = await reads.many<(string | null)[], (typeof wanted)[number]>(
        slice,
        (pipe, { name, ids }) => pipe.zmscore(name, ids),
      );
      for (const [at, { ids }] of slice.entries())
        for (const [index, id] of ids.entries())
          sums.set(id, sums.get(id)! + Number(scores[at]?.[index] ?? 0));
    }
    scoresLeft -= days.length * added.flat().length;
    const least = firstOf(sums, limit)[limit - 1]?.amount ?? 0;
    open = open.filter((_, at) => othersMost[at]! > least);
    if (open.length === 0 || depth === CANDIDATES_MAX || scoresLeft <= 0)
      return { sums, complete: open.length === 0 };
  }
}

/** By partition, the accounts in the first places of some day, and the most that another one may have spent. */
async function firstOfDays(
  reads: PartitionReads,
  partitions: readonly number[],
  days: readonly string[],
  depth: number,
) {
  const lists = partitions.flatMap((partition, at) =>
    days.map((day) => ({ partition, at, name: spentName(partition, day) })),
  );
  const found = partitions.map(() => new Set<string>());
  const othersMost = partitions.map(() => 0);
  for (const slice of slicesOf(lists, () => depth)) {
    const pages = await reads.many<string[], (typeof lists)[number]>(slice, (pipe, { name }) =>
      pipe.zrevrange(name, 0, depth - 1, "WITHSCORES"),
    );
    for (const [nth, { at }] of slice.entries()) {
      const page = pages[nth] ?? [];
      for (const id of membersOf(page)) found[at]!.add(id);
      if (page.length === 2 * depth) othersMost[at]! += Math.max(0, Number(page.at(-1)));
    }
  }
  return { candidates: found.map((ids) => [...ids]), othersMost };
}

function slicesOf<Item>(items: readonly Item[], sizeOf: (item: Item) => number): Item[][] {
  const slices: Item[][] = [];
  let size = MEMBERS_AT_A_TIME;
  for (const item of items) {
    if (size >= MEMBERS_AT_A_TIME) {
      slices.push([]);
      size = 0;
    }
    slices.at(-1)!.push(item);
    size += sizeOf(item);
  }
  return slices;
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
