import { setImmediate as nextTick } from "node:timers/promises";
import type { Redis } from "ioredis";
import { partitionNames, totalsName, usageName } from "../records/names.ts";
import { USAGE_NUMBERS } from "../records/records.ts";
import { readsOfMost, type Unread } from "../redis/partition-reads.ts";
import { flatHash, many, pairsOf } from "../redis/pipelines.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import { numbersOf, type UsageCounts } from "./usage.ts";

// Usage as ROLLUP has counted it: of an account by month, day, endpoint and key, and of all accounts together.

/** Fields that one command reads: less than a millisecond of Redis. */
const PAGE = 800;

/** Totals of a month have a field a day and endpoint. */
const MONTHS_AT_ONCE = 16;

export type UsageNumbers = Record<keyof typeof USAGE_NUMBERS, number>;
const NAMES = Object.keys(USAGE_NUMBERS) as (keyof UsageNumbers)[];
export const NO_USAGE: UsageNumbers = numbersOf(NAMES);

/** Read from its texts when asked for: of most records not all is needed. */
class UsageRecord {
  readonly #month: string;
  #field = "";
  #text = "";
  readonly #numbers = { ...NO_USAGE };

  constructor(month: string) {
    this.#month = month;
  }
  is(field: string, text: string): this {
    this.#field = field;
    this.#text = text;
    return this;
  }
  get day(): string {
    return `${this.#month}-${this.#field.slice(0, this.#field.indexOf(" "))}`;
  }
  /** Empty for entries without a request. */
  get endpoint(): string {
    return wordOf(this.#field.slice(this.#field.indexOf(" ") + 1, this.#field.lastIndexOf(" ")));
  }
  /** Empty for entries without a request; `*`: further keys together. */
  get keyId(): string {
    return wordOf(this.#field.slice(this.#field.lastIndexOf(" ") + 1));
  }
  numbers(): UsageNumbers {
    return readNumbers(this.#text, this.#numbers);
  }
  addTo(sums: UsageNumbers): void {
    addNumbers(this.#text, sums);
  }
}

/** How many records an account has of these months. */
export const countUsage = (
  redis: Redis,
  partition: number,
  accountId: string,
  months: readonly string[],
): Promise<number[]> =>
  many<number, string>(redis, months, (pipe, month) => pipe.hlen(usageName(partition, accountId, month)));

/** @param add called for each record of the month, once, in no particular order; the record is valid during the call only */
export async function readUsage(
  redis: Redis,
  { partition, accountId, month }: { partition: number; accountId: string; month: string },
  add: (record: UsageRecord) => void,
): Promise<void> {
  const name = usageName(partition, accountId, month);
  const count = await redis.hlen(name);
  const pages: string[][] = [];
  let [cursor, found] = ["0", 0];
  do {
    const [next, flat] = await redis.hscan(name, cursor, "COUNT", PAGE);
    pages.push(flat);
    cursor = next;
    found += flat.length / 2;
  } while (cursor !== "0");
  // HSCAN may return a field twice during a rehash. Fields are never removed, so `count` of them or fewer are each another one.
  const seen = found > count ? new Set<string>() : undefined;
  const record = new UsageRecord(month);
  for (const flat of pages) {
    for (let at = 0; at < flat.length; at += 2) {
      const field = flat[at]!;
      if (seen?.has(field)) continue;
      seen?.add(field);
      add(record.is(field, flat[at + 1]!));
    }
    await nextTick();
  }
}

/** An account's month by day, all endpoints and keys together. */
export async function usageByDay(
  redis: Redis,
  place: { partition: number; accountId: string; month: string },
): Promise<Map<string, UsageNumbers>> {
  const days = new Map<string, UsageNumbers>();
  await readUsage(redis, place, (record) => {
    const { day } = record;
    const sums = days.get(day) ?? { ...NO_USAGE };
    record.addTo(sums);
    days.set(day, sums);
  });
  return days;
}

const wordOf = (word: string): string => (word === "-" ? "" : word);

/** @returns `numbers`, which are then those of the text */
function readNumbers(text: string, numbers: UsageNumbers): UsageNumbers {
  for (const name of NAMES) numbers[name] = 0;
  addNumbers(text, numbers);
  return numbers;
}

/** @param text whole numbers, by place; the last ones may be missing */
function addNumbers(text: string, sums: UsageNumbers): void {
  let begin = 0;
  for (const name of NAMES) {
    const end = text.indexOf(" ", begin);
    sums[name] += Number(text.slice(begin, end === -1 ? undefined : end));
    if (end === -1) return;
    begin = end + 1;
  }
}

/** Undefined for a day without usage, which has no row. */
export function usageCounts({
  requests,
  charged,
  refunded,
  completed,
  failed,
  seconds,
}: UsageNumbers): UsageCounts | undefined {
  // A refund that was taken back counts below zero, so a sum of them could be 0 by chance.
  if ([requests, charged, refunded, completed, failed].every((number) => number === 0)) return undefined;
  return { requests, credits: charged, refunds: refunded, completed, failed, seconds };
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
  const found = await reads.many<string[], (typeof items)[number]>(
    items,
    (pipe, item) => flatHash(pipe, totalsName(item.partition, item.month)),
    MONTHS_AT_ONCE,
  );
  const records = found.flatMap((flat = [], at) =>
    pairsOf(flat).map(([field, text]) => {
      const [day = "", endpoint = ""] = field.split(" ");
      return { day: `${items[at]!.month}-${day}`, endpoint, numbers: readNumbers(text, { ...NO_USAGE }) };
    }),
  );
  return { records, unread: reads.unread() };
}

export const sumOfNumbers = (one: UsageNumbers | undefined, other: UsageNumbers): UsageNumbers =>
  one === undefined
    ? other
    : (Object.fromEntries(NAMES.map((name) => [name, one[name] + other[name]])) as UsageNumbers);

export async function rolledSince(
  redis: Redis,
  partition: number,
): Promise<{ entriesMs: number; endedMs: number } | undefined> {
  const [since, endedSince] = await redis.hmget(partitionNames(partition).rolled, "since", "ended_since");
  return since === null ? undefined : { entriesMs: Number(since), endedMs: Number(endedSince) };
}
