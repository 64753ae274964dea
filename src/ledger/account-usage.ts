import type { Redis } from "ioredis";
import { dayText } from "../domain/moments.ts";
import { requireOrder } from "../operations/access/operator-values.ts";
import { accountNames, META } from "../records/names.ts";
import { noAccount, OperatorError } from "../records/operator-error.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import type { Unread } from "../redis/partition-reads.ts";
import { storeNowMs } from "../redis/server-clock.ts";
import { placeOfAccount } from "../redis/store-facts.ts";
import {
  addUsage,
  createUsageRows,
  dayStartMs,
  monthBounds,
  NO_USAGE,
  rolledSince,
  sumOfNumbers,
  totalsOf,
  type UsageGroup,
  type UsageNumbers,
  type UsageRow,
  type UsageSelection,
  usageOf,
} from "./usage.ts";

const DAY_MS = 86_400_000;
const KEPT_MS = 400 * DAY_MS;

/** Days are by UTC, such as 2026-10-31, both inclusive. */
interface AccountUsageQuery {
  accountId: string;
  from?: string | undefined;
  to?: string | undefined;
  by: readonly Exclude<UsageGroup, "account">[];
}

interface AccountUsage {
  /** Key `*`: further keys together. */
  rows: UsageRow[];
  source: "archive" | "redis";
  /** Unix ms; undefined if no requested charge is older. */
  sinceMs: number | undefined;
  /** Like `sinceMs`, for tasks. */
  endedSinceMs: number | undefined;
}

/** @throws OperatorError `unavailable` while the archive cannot be used */
export interface ArchivedUsage {
  usage(selection: UsageSelection): Promise<UsageRow[]>;
  copiedUntilMs(partition: number): Promise<number | undefined>;
}

/** From the archive and, for the latest days, Redis. Cost depends on days, endpoints and keys, not on entries. @throws OperatorError */
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
  if (archive) {
    const found = await fromBoth(place, query, since, archive).catch(unlessAway);
    if (found) return { rows: found, source: "archive", sinceMs: undefined, endedSinceMs: undefined };
  }
  const rows = createUsageRows(query.by);
  await addRollups(rows, place, query);
  const beginMs = Math.max(Number(createdAt ?? 0), from === undefined ? 0 : dayStartMs(from));
  const after = (ms: number): number | undefined => (ms > beginMs ? ms : undefined);
  return {
    rows: rows.all(),
    source: "redis",
    sinceMs: after(since.entriesMs),
    endedSinceMs: after(since.endedMs),
  };
}

interface Place {
  redis: Redis;
  partition: number;
  nowMs: number;
}

async function sinceOf({ redis, partition, nowMs }: Place): Promise<{ entriesMs: number; endedMs: number }> {
  const keptMs = dayStartMs(`${monthsOf(nowMs, undefined, undefined)[0]}-01`);
  const rolled = (await rolledSince(redis, partition)) ?? { entriesMs: nowMs, endedMs: nowMs };
  return { entriesMs: Math.max(keptMs, rolled.entriesMs), endedMs: Math.max(keptMs, rolled.endedMs) };
}

async function fromBoth(
  place: Place,
  query: AccountUsageQuery,
  since: { entriesMs: number; endedMs: number },
  archive: ArchivedUsage,
): Promise<UsageRow[]> {
  const copiedMs = Math.min(await archive.copiedUntilMs(place.partition).then((ms) => ms ?? 0), place.nowMs);
  // One more day: tasks are copied after charges, and clocks may differ.
  const first = dayText(Math.max(0, copiedMs - DAY_MS));
  const isInRedis = Math.max(since.entriesMs, since.endedMs) <= dayStartMs(first);
  if (!isInRedis) return archive.usage(query);
  const { from = "", to = "9999-12-31", by } = query;
  const before = dayText(dayStartMs(first) - DAY_MS);
  const rows = createUsageRows(by);
  const last = to < before ? to : before;
  if (from <= last) for (const row of await archive.usage({ ...query, to: last })) rows.add(row, row);
  if (to >= first) await addRollups(rows, place, { ...query, from: from > first ? from : first });
  return rows.all();
}

async function addRollups(
  rows: ReturnType<typeof createUsageRows>,
  { redis, partition, nowMs }: Place,
  { accountId, from = "", to = "9999-12-31" }: AccountUsageQuery,
): Promise<void> {
  const months = monthsOf(nowMs, from || undefined, to);
  for await (const page of usageOf(redis, partition, accountId, months)) {
    for (const { day, endpoint, keyId, numbers } of page) {
      if (day < from || day > to) continue;
      addUsage(rows, { day, endpoint, key_id: keyId }, numbers);
    }
  }
}

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

/** For a read of the archive that may be away. */
export function unlessAway(error: unknown): undefined {
  if (error instanceof OperatorError && error.code === "unavailable") return undefined;
  throw error;
}

/** Credits are whole and positive; `adjusted` may be negative. */
interface DayOfMoney extends UsageNumbers {
  day: string;
}

/** Oldest first, days without usage left out. Both days inclusive. */
export async function moneyByDay(
  nodes: RedisNodes,
  from: string,
  to: string,
): Promise<{ days: DayOfMoney[]; unread: Unread | undefined }> {
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
