import { DAY_MS, dayText } from "../domain/moments.ts";
import { requireOrder } from "../operations/access/operator-values.ts";
import { firstMembers } from "../operations/accounts/sorted-lists.ts";
import { archivedUntilMs } from "../operations/credits/archive-lag.ts";
import { cursorOf, positionOf, requirePageSize } from "../records/cursors.ts";
import { META, partitionNames } from "../records/names.ts";
import { OperatorError } from "../records/operator-error.ts";
import { readsOfMost, type Unread } from "../redis/partition-reads.ts";
import { storeNowMs } from "../redis/server-info.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import {
  type ArchivedUsage,
  accountUsage,
  endOfDayMs,
  keptSinceMs,
  monthsOf,
  unlessAway,
} from "./account-usage.ts";
import { createUsageRows, dayStartMs, type UsageGroup, type UsageRow } from "./usage.ts";
import { rolledSince, totalsByEndpoint, usageCounts } from "./usage-rollups.ts";

const ACCOUNTS_MAX = 50;

interface UsageQuery {
  from?: string | undefined;
  to?: string | undefined;
  by: readonly UsageGroup[];
  cursor?: string | undefined;
  limit: number;
}

interface AllUsage {
  rows: UsageRow[];
  next: string | undefined;
  source: "archive" | "redis";
  /** Before, charges are not counted, Unix ms; undefined if no requested one is older. */
  sinceMs: number | undefined;
  /** Ended tasks before this time are not counted, Unix ms; undefined if no requested one is older. */
  endedSinceMs: number | undefined;
  /** Of the archive: what was later may be missing, Unix ms; undefined if nothing of it is. */
  untilMs: number | undefined;
  unread: Unread | undefined;
}

/**
 * By day, month and endpoint in one page, from totals, and from the archive for days before them. By account or key in pages that look
 * at 50 accounts, with `account` first. @throws OperatorError
 */
export async function allUsage(
  nodes: RedisNodes,
  query: UsageQuery,
  archive?: ArchivedUsage,
): Promise<AllUsage> {
  const { from, to, by, limit } = query;
  requirePageSize(limit);
  requireOrder(from, to);
  if (by.includes("account") || by.includes("key")) return usageByAccount(nodes, query, archive);
  if (query.cursor !== undefined)
    throw new OperatorError("usage by day, month and endpoint has one page", "invalid", "cursor");
  const nowMs = await storeNowMs(nodes.ofName(META));
  const { entriesMs, endedMs } = await rolledSinceOf(nodes, nowMs);
  const beginMs = from === undefined ? 0 : dayStartMs(from);
  // The first day that Redis has as a whole.
  const first = dayText(Math.max(entriesMs, endedMs) + DAY_MS - 1);
  const isEarlier = from === undefined || from < first;
  const earlier =
    archive && isEarlier ? await usageBefore(nodes, first, query, archive).catch(unlessAway) : undefined;
  const rows = createUsageRows(by);
  for (const row of earlier?.rows ?? []) rows.add(row, () => row);
  const begin = earlier ? first : from;
  const { records, unread } = await totalsByEndpoint(nodes, monthsOf(nowMs, begin, to));
  const isByEndpoint = by.includes("endpoint");
  for (const { day, endpoint, numbers } of records) {
    if ((begin !== undefined && day < begin) || (to !== undefined && day > to)) continue;
    if ((endpoint !== "") !== isByEndpoint) continue;
    const used = usageCounts(numbers);
    rows.add({ day, endpoint }, () => used);
  }
  const after = (ms: number): number | undefined => (ms > beginMs ? ms : undefined);
  const archivedSinceMs = earlier?.lostMs === undefined ? 0 : earlier.lostMs + 1;
  return {
    rows: rows.all(),
    next: undefined,
    source: earlier ? "archive" : "redis",
    sinceMs: after(earlier ? archivedSinceMs : entriesMs),
    endedSinceMs: after(earlier ? archivedSinceMs : endedMs),
    untilMs: earlier?.untilMs,
    unread,
  };
}

/** Days before one, as the archive has them. */
async function usageBefore(
  nodes: RedisNodes,
  day: string,
  { from, to, by }: Pick<UsageQuery, "from" | "to" | "by">,
  archive: ArchivedUsage,
): Promise<{ rows: UsageRow[]; lostMs: number | undefined; untilMs: number | undefined }> {
  const before = dayText(dayStartMs(day) - DAY_MS);
  const last = to !== undefined && to < before ? to : before;
  const untilMs = await archivedUntilMs(nodes, endOfDayMs(last));
  return {
    rows: await archive.usage({ from, to: last, by }),
    lostMs: await archive.lostUntilMs(endOfDayMs(last)),
    untilMs,
  };
}

/** From when on usage of all partitions that can be read is in Redis. */
export async function rolledSinceOf(
  nodes: RedisNodes,
  nowMs: number,
): Promise<{ entriesMs: number; endedMs: number }> {
  const partitions = Array.from({ length: await partitionsOf(nodes) }, (_, at) => at);
  const reads = readsOfMost(nodes);
  const rolled = await Promise.all(
    partitions.map((partition) => reads.at(partition, (redis) => rolledSince(redis, partition))),
  );
  const known = rolled.filter((one) => one !== undefined);
  const firstMs = known.length === 0 ? nowMs : keptSinceMs(nowMs);
  return {
    entriesMs: Math.max(firstMs, ...known.map(({ entriesMs }) => entriesMs)),
    endedMs: Math.max(firstMs, ...known.map(({ endedMs }) => endedMs)),
  };
}

/** Records that a page reads before it ends with an account. */
const RECORDS_MAX = 10_000;

/** A place is an account, and where its next rows begin, if it has more. */
async function usageByAccount(
  nodes: RedisNodes,
  { from, to, by, cursor, limit }: UsageQuery,
  archive: ArchivedUsage | undefined,
): Promise<AllUsage> {
  const list = ["usage-by-account", from, to, ...by];
  const rest = by.filter((name) => name !== "account");
  const [, last = "", inside = ""] =
    cursor === undefined ? [] : (/^(\S+) (.*)$/s.exec(positionOf(list, cursor)) ?? []);
  const reads = readsOfMost(nodes);
  const partitions = await partitionsOf(nodes);
  const nameOf = (partition: number): string => partitionNames(partition).accounts;
  const found = await firstMembers(reads, { partitions, nameOf, prefix: "", after: last }, ACCOUNTS_MAX);
  const ids = [...(inside === "" ? [] : [last]), ...found.map(({ member }) => member)].slice(0, ACCOUNTS_MAX);
  const rows: UsageRow[] = [];
  const since: { entriesMs?: number | undefined; endedMs?: number | undefined } = {};
  let untilMs: number | undefined;
  let source: AllUsage["source"] = archive ? "archive" : "redis";
  const page = (place?: string): AllUsage => ({
    ...{ rows, next: place && cursorOf(list, place), source },
    ...{ sinceMs: since.entriesMs, endedSinceMs: since.endedMs, untilMs, unread: reads.unread() },
  });
  let left = RECORDS_MAX;
  for (const accountId of ids) {
    const query = { accountId, from, to, by: rest, limit: limit - rows.length };
    const after = accountId === last ? inside : undefined;
    const used = await accountUsage(nodes, { ...query, after }, archive);
    // The archive may be away.
    if (used.source === "redis") source = "redis";
    since.entriesMs = latestOf(since.entriesMs, used.sinceMs);
    since.endedMs = latestOf(since.endedMs, used.endedSinceMs);
    if (used.untilMs !== undefined) untilMs = Math.min(untilMs ?? used.untilMs, used.untilMs);
    rows.push(...used.rows.map((row) => ({ account_id: accountId, ...row })));
    if (used.next !== undefined) return page(`${accountId} ${used.next}`);
    left -= used.looked ?? 0;
    if (rows.length === limit || left <= 0) return page(`${accountId} `);
  }
  return page(ids.length < ACCOUNTS_MAX ? undefined : `${ids.at(-1)} `);
}

const latestOf = (one: number | undefined, other: number | undefined): number | undefined =>
  one === undefined || (other !== undefined && other > one) ? other : one;
