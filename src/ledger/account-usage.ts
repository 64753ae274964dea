import type { Redis } from "ioredis";
import { DAY_MS, dayText } from "../domain/moments.ts";
import { requireOrder } from "../operations/access/operator-values.ts";
import { archivedUntilMs, type LostUntilMs } from "../operations/credits/archive-lag.ts";
import { accountNames, META } from "../records/names.ts";
import { noAccount, OperatorError } from "../records/operator-error.ts";
import type { Unread } from "../redis/partition-reads.ts";
import { storeNowMs } from "../redis/server-info.ts";
import { placeOfAccount, type RedisNodes } from "../redis/store-facts.ts";
import {
  createUsageRows,
  dayStartMs,
  monthBounds,
  type UsageGroup,
  type UsageRow,
  type UsageSelection,
} from "./usage.ts";
import {
  countUsage,
  NO_USAGE,
  readUsage,
  rolledSince,
  sumOfNumbers,
  totalsOf,
  type UsageNumbers,
  usageCounts,
} from "./usage-rollups.ts";

const KEPT_MS = 400 * DAY_MS;

/** Records that a page reads before it ends with their month. ROLLUP keeps at most as many of a month. */
const RECORDS_MAX = 20_000;

/** Days are by UTC, such as 2026-10-31, both inclusive. */
interface AccountUsageQuery {
  accountId: string;
  from?: string | undefined;
  to?: string | undefined;
  by: readonly UsageGroup[];
  keyId?: string | undefined;
  /** Where the page begins: a `next`. */
  after?: string | undefined;
  /** Rows; undefined for all. */
  limit?: number | undefined;
}

interface AccountUsage {
  /** Key `*`: further keys together. */
  rows: UsageRow[];
  source: "archive" | "redis";
  /** Unix ms; undefined if no requested charge is older. */
  sinceMs: number | undefined;
  /** Like `sinceMs`, for tasks. */
  endedSinceMs: number | undefined;
  /** Of the archive: what was later may be missing, Unix ms; undefined if nothing of it is. */
  untilMs: number | undefined;
  next: string | undefined;
  /** Records of Redis that were read; undefined from the archive. */
  looked?: number;
}

/** @throws OperatorError `unavailable` while the archive cannot be used */
export interface ArchivedUsage {
  usage(selection: UsageSelection): Promise<UsageRow[]>;
  copiedUntilMs(partition: number): Promise<number | undefined>;
  lostUntilMs: LostUntilMs;
}

/**
 * From the archive and, for the latest days, Redis. A page by day or month first ends with the month in which it has its rows or has read
 * enough. Cost depends on days, endpoints and keys, not on entries. @throws OperatorError
 */
export async function accountUsage(
  nodes: RedisNodes,
  query: AccountUsageQuery,
  archive?: ArchivedUsage,
): Promise<AccountUsage> {
  const { accountId, from, to } = query;
  requireOrder(from, to);
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  const { account } = accountNames(partition, accountId);
  const [money, createdAt] = await redis.hmget(account, "money", "created_at");
  if (money === null) throw noAccount(accountId);
  const place = { redis, partition, nowMs: await storeNowMs(redis) };
  const since = await sinceOf(place);
  const beginMs = Math.max(Number(createdAt ?? 0), from === undefined ? 0 : dayStartMs(from));
  const after = (ms: number): number | undefined => (ms > beginMs ? ms : undefined);
  const archived = archive && (await fromBoth(nodes, place, query, since, archive).catch(unlessAway));
  if (archived) {
    const { rows, lostMs, untilMs } = archived;
    const sinceMs = lostMs === undefined ? undefined : after(lostMs + 1);
    return { ...{ ...rows.page(), source: "archive" }, ...{ sinceMs, endedSinceMs: sinceMs, untilMs } };
  }
  const rows = createUsageRows(query.by, query);
  const { end, looked } = await addRollups(rows, place, query);
  const page = rows.page();
  return {
    ...{ rows: page.rows, next: page.next ?? end, looked, source: "redis" },
    sinceMs: after(since.entriesMs),
    endedSinceMs: after(since.endedMs),
    untilMs: undefined,
  };
}

interface Place {
  redis: Redis;
  partition: number;
  nowMs: number;
}

async function sinceOf({ redis, partition, nowMs }: Place): Promise<{ entriesMs: number; endedMs: number }> {
  const keptMs = keptSinceMs(nowMs);
  const rolled = (await rolledSince(redis, partition)) ?? { entriesMs: nowMs, endedMs: nowMs };
  return { entriesMs: Math.max(keptMs, rolled.entriesMs), endedMs: Math.max(keptMs, rolled.endedMs) };
}

type Rows = ReturnType<typeof createUsageRows>;

async function fromBoth(
  nodes: RedisNodes,
  place: Place,
  query: AccountUsageQuery,
  since: { entriesMs: number; endedMs: number },
  archive: ArchivedUsage,
): Promise<{ rows: Rows; lostMs: number | undefined; untilMs: number | undefined }> {
  const rows = createUsageRows(query.by, query);
  const { accountId, from = "", to = "9999-12-31", by, keyId } = query;
  const copiedMs = Math.min(await archive.copiedUntilMs(place.partition).then((ms) => ms ?? 0), place.nowMs);
  // One more day: tasks are copied after charges, and clocks may differ.
  const first = dayText(Math.max(0, copiedMs - DAY_MS));
  const isInRedis = Math.max(since.entriesMs, since.endedMs) <= dayStartMs(first);
  const before = dayText(dayStartMs(first) - DAY_MS);
  const last = !isInRedis ? query.to : to < before ? to : before;
  const endMs = endOfDayMs(last);
  const lostMs = await archive.lostUntilMs(endMs, place.partition);
  const untilMs = isInRedis ? undefined : await archivedUntilMs(nodes, endMs, place.partition);
  if (last === undefined || from <= last) {
    const found = await archive.usage({ accountId, from: query.from, to: last, by });
    for (const row of found) if (keyId === undefined || row.key_id === keyId) rows.add(row, () => row);
  }
  if (isInRedis && to >= first)
    await addRollups(rows, place, { ...query, from: from > first ? from : first, limit: undefined });
  return { rows, lostMs, untilMs };
}

/** @param day undefined: the last one of all */
export const endOfDayMs = (day: string | undefined): number =>
  day === undefined ? Number.MAX_SAFE_INTEGER : dayStartMs(day) + DAY_MS;

/** @returns the end of the last month that was read, if there are further ones */
async function addRollups(
  rows: Rows,
  { redis, partition, nowMs }: Place,
  { accountId, from = "", to = "9999-12-31", by, keyId, after = "", limit }: AccountUsageQuery,
): Promise<{ end: string | undefined; looked: number }> {
  const isByMonth = by[0] === "day" || by[0] === "month";
  const months = monthsOf(nowMs, from || undefined, to).filter(
    (month) => !isByMonth || endOfMonth(month) > after,
  );
  const counts = await countUsage(redis, partition, accountId, months);
  let looked = 0;
  let end: string | undefined;
  for (const [at, month] of months.entries()) {
    const count = counts[at]!;
    if (count === 0) continue;
    const isEnough = limit !== undefined && (rows.hasEnough() || looked + count > RECORDS_MAX);
    if (isByMonth && looked > 0 && isEnough) return { end, looked };
    await readUsage(redis, { partition, accountId, month }, (record) => {
      const { day, endpoint, keyId: key } = record;
      if (day < from || day > to || (keyId !== undefined && key !== keyId)) return;
      rows.add({ day, account_id: accountId, endpoint, key_id: key }, () => usageCounts(record.numbers()));
    });
    looked += count;
    end = endOfMonth(month);
  }
  return { end: undefined, looked };
}

/** After all days of a month in the order of rows. */
const endOfMonth = (month: string): string => `${month}~`;

export function monthsOf(nowMs: number, from: string | undefined, to: string | undefined): string[] {
  const oldest = dayText(nowMs - KEPT_MS).slice(0, 7);
  // One more day: another server's clock may be in the next month.
  const newest = dayText(nowMs + DAY_MS).slice(0, 7);
  const first = from && from.slice(0, 7) > oldest ? from.slice(0, 7) : oldest;
  const last = to && to.slice(0, 7) < newest ? to.slice(0, 7) : newest;
  const months: string[] = [];
  for (let month = first; month <= last; month = monthBounds(month).next.slice(0, 7)) months.push(month);
  return months;
}

/** Roll-ups of earlier months have expired. */
export const keptSinceMs = (nowMs: number): number =>
  dayStartMs(`${monthsOf(nowMs, undefined, undefined)[0]}-01`);

/** For a read of the archive that may be away. */
export function unlessAway(error: unknown): undefined {
  if (error instanceof OperatorError && error.code === "unavailable") return undefined;
  throw error;
}

/** Oldest first, days without usage left out. Both days inclusive. Credits are whole and positive; `adjusted` may be negative. */
export async function moneyByDay(nodes: RedisNodes, from: string, to: string) {
  const nowMs = await storeNowMs(nodes.ofName(META));
  const { days, unread } = await totalsOf(nodes, monthsOf(nowMs, from, to));
  const shown = [...days].filter(([day]) => day >= from && day <= to).sort(([a], [b]) => (a < b ? -1 : 1));
  return { days: shown.map(([day, numbers]) => ({ day, ...numbers })), unread };
}

/** This UTC day and month, by the store's clock. */
export async function moneyNow(
  nodes: RedisNodes,
): Promise<{ today: UsageNumbers; month: UsageNumbers; unread: Unread | undefined }> {
  const today = dayText(await storeNowMs(nodes.ofName(META)));
  const { days, unread } = await moneyByDay(nodes, `${today.slice(0, 7)}-01`, today);
  const sum = (some: readonly UsageNumbers[]): UsageNumbers => some.reduce(sumOfNumbers, NO_USAGE);
  const ofMonth = days.map(({ day: _, ...numbers }) => numbers);
  const ofToday = ofMonth.filter((_, at) => days[at]!.day === today);
  return { today: sum(ofToday), month: sum(ofMonth), unread };
}
