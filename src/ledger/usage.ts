import type { Redis } from "ioredis";
import { dayText } from "../domain/moments.ts";
import { recordOf } from "../records/ledger-entries.ts";
import { partitionNames, totalsName, usageName } from "../records/names.ts";
import { USAGE_NUMBERS } from "../records/records.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { readsOfMost, type Unread } from "../redis/partition-reads.ts";
import { partitionsOf } from "../redis/store-facts.ts";

export const USAGE_COLUMNS = {
  day: "day",
  month: "month",
  account: "account_id",
  endpoint: "endpoint",
  key: "key_id",
} as const;
export type UsageGroup = keyof typeof USAGE_COLUMNS;

/** Days are by UTC, such as 2026-10-31, both inclusive. */
export interface UsageSelection {
  accountId?: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
  by: readonly UsageGroup[];
}

export const USAGE_COUNTS = ["requests", "credits", "refunds", "completed", "failed", "seconds"] as const;
type UsageCounts = Record<(typeof USAGE_COUNTS)[number], number>;

export interface UsageRow extends UsageCounts {
  day?: string;
  month?: string;
  account_id?: string;
  endpoint?: string;
  key_id?: string;
}

/** These members as numbers; 0 for one that is missing. */
export const numbersOf = <Name extends string>(
  names: readonly Name[],
  row: { [Member in Name]?: number | string | null | undefined } = {},
) => Object.fromEntries(names.map((name) => [name, Number(row[name] ?? 0)])) as Record<Name, number>;

/** Rounded half up. */
export const runSeconds = (boundAtMs: number, endedAtMs: number): number =>
  Math.round(Math.max(0, endedAtMs - boundAtMs) / 1000);

export const dayStartMs = (day: string): number => Date.parse(`${day}T00:00:00Z`);

export function monthBounds(month: string): { first: string; next: string } {
  const [year = 0, number = 0] = month.split("-").map(Number);
  return { first: `${month}-01`, next: dayText(Date.UTC(year, number, 1)) };
}

interface UsagePlace {
  atMs: number;
  accountId: string;
  endpoint: string;
  keyId: string;
}

export function createUsageTotals({ accountId, from, to, by }: UsageSelection) {
  const rows = createUsageRows(by);
  return {
    add(place: UsagePlace, counts: Partial<UsageCounts>): void {
      const day = dayText(place.atMs);
      if (accountId !== undefined && place.accountId !== accountId) return;
      if ((from !== undefined && day < from) || (to !== undefined && day > to)) return;
      rows.add({ day, account_id: place.accountId, endpoint: place.endpoint, key_id: place.keyId }, counts);
    },
    rows: rows.all,
  };
}

const MONTH_CHARS = "2026-10".length;

/** A month is that of the day, if the values have no month. */
export function createUsageRows(by: readonly UsageGroup[]) {
  const rows = new Map<string, UsageRow>();
  return {
    add(values: Omit<UsageRow, keyof UsageCounts>, counts: Partial<UsageCounts>): void {
      const month = values.day?.slice(0, MONTH_CHARS);
      const all = { month, ...values };
      const group = Object.fromEntries(by.map((name) => [USAGE_COLUMNS[name], all[USAGE_COLUMNS[name]]]));
      const id = JSON.stringify(group);
      const row = rows.get(id) ?? { ...group, ...numbersOf(USAGE_COUNTS) };
      rows.set(id, row);
      for (const name of USAGE_COUNTS) row[name] += counts[name] ?? 0;
    },
    all: (): UsageRow[] => [...rows.values()].sort((one, other) => compare(one, other, by)),
  };
}

/** Adds what was used of an endpoint on a day; a day without usage has no row. */
export function addUsage(
  rows: ReturnType<typeof createUsageRows>,
  place: Omit<UsageRow, keyof UsageCounts>,
  { requests, charged, refunded, completed, failed, seconds }: UsageNumbers,
): void {
  if (requests + charged + refunded + completed + failed !== 0)
    rows.add(place, { requests, credits: charged, refunds: refunded, completed, failed, seconds });
}

function compare(one: UsageRow, other: UsageRow, by: readonly UsageGroup[]): number {
  for (const name of by) {
    const [a = "", b = ""] = [one[USAGE_COLUMNS[name]], other[USAGE_COLUMNS[name]]];
    if (a !== b) return a < b ? -1 : 1;
  }
  return 0;
}

export function totalOf(rows: readonly UsageCounts[]): UsageCounts {
  const total = numbersOf(USAGE_COUNTS);
  for (const row of rows) for (const name of USAGE_COUNTS) total[name] += row[name];
  return total;
}

const PAGE = 400;

export type UsageNumbers = Record<keyof typeof USAGE_NUMBERS, number>;
const NAMES = Object.keys(USAGE_NUMBERS) as (keyof UsageNumbers)[];

/** Endpoint and key are empty for entries without a request. */
interface UsageRecord {
  day: string;
  endpoint: string;
  /** `*`: further keys together. */
  keyId: string;
  numbers: UsageNumbers;
}

export async function* usageOf(
  redis: Redis,
  partition: number,
  accountId: string,
  months: readonly string[],
): AsyncGenerator<UsageRecord[]> {
  for (const month of months) {
    const name = usageName(partition, accountId, month);
    // HSCAN may return a field twice during a rehash.
    const seen = new Set<string>();
    let cursor = "0";
    do {
      const [next, flat] = await redis.hscan(name, cursor, "COUNT", PAGE);
      cursor = next;
      const fields = Object.entries(recordOf(flat)).filter(([field]) => !seen.has(field));
      for (const [field] of fields) seen.add(field);
      yield fields.map(([field, text]) => usageRecord(month, field, text));
    } while (cursor !== "0");
  }
}

function usageRecord(month: string, field: string, text: string): UsageRecord {
  const [day = "", endpoint = "", keyId = ""] = field.split(" ").map((word) => (word === "-" ? "" : word));
  return { day: `${month}-${day}`, endpoint, keyId, numbers: usageNumbers(text) };
}

function usageNumbers(text: string): UsageNumbers {
  const words = text.split(" ");
  return Object.fromEntries(NAMES.map((name, at) => [name, Number(words[at] ?? 0)])) as UsageNumbers;
}

/** `unread`: partitions that are not counted. */
export async function totalsOf(
  nodes: RedisNodes,
  months: readonly string[],
): Promise<{ days: Map<string, UsageNumbers>; unread: Unread | undefined }> {
  const { records, unread } = await totalsByEndpoint(nodes, months);
  const days = new Map<string, UsageNumbers>();
  for (const { day, endpoint, numbers } of records)
    if (endpoint === "") days.set(day, sumOfNumbers(days.get(day), numbers));
  return { days, unread };
}

/** Usage of all accounts by day and endpoint; the endpoint "" is the sum. */
export async function totalsByEndpoint(
  nodes: RedisNodes,
  months: readonly string[],
): Promise<{
  records: { day: string; endpoint: string; numbers: UsageNumbers }[];
  unread: Unread | undefined;
}> {
  const partitions = await partitionsOf(nodes);
  const reads = readsOfMost(nodes);
  const items = Array.from({ length: partitions }, (_, partition) =>
    months.map((month) => ({ partition, month })),
  ).flat();
  const found = await reads.many<Record<string, string>, (typeof items)[number]>(items, (pipe, item) =>
    pipe.hgetall(totalsName(item.partition, item.month)),
  );
  const records = found.flatMap((fields, at) =>
    Object.entries(fields ?? {}).map(([field, text]) => {
      const [day = "", endpoint = ""] = field.split(" ");
      return { day: `${items[at]!.month}-${day}`, endpoint, numbers: usageNumbers(text) };
    }),
  );
  return { records, unread: reads.unread() };
}

export function sumOfNumbers(one: UsageNumbers | undefined, other: UsageNumbers): UsageNumbers {
  if (one === undefined) return other;
  return Object.fromEntries(NAMES.map((name) => [name, one[name] + other[name]])) as UsageNumbers;
}

export const NO_USAGE: UsageNumbers = usageNumbers("");

export async function rolledSince(
  redis: Redis,
  partition: number,
): Promise<{ entriesMs: number; endedMs: number } | undefined> {
  const [since, endedSince] = await redis.hmget(partitionNames(partition).rolled, "since", "ended_since");
  return since === null ? undefined : { entriesMs: Number(since), endedMs: Number(endedSince) };
}
