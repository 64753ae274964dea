import type { Redis } from "ioredis";
import { recordOf } from "../records/ledger-entries.ts";
import { partitionNames, totalsName, usageName } from "../records/names.ts";
import { USAGE_NUMBERS } from "../records/records.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { readsOfMost, type Unread } from "../redis/partition-reads.ts";
import { partitionsOf } from "../redis/store-facts.ts";

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
