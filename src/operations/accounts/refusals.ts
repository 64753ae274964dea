import type { Redis } from "ioredis";
import { DAY_MS, dayText } from "../../domain/moments.ts";
import {
  badCursor,
  cursorOf,
  type PageQuery,
  type Period,
  positionOf,
  requirePageSize,
} from "../../records/cursors.ts";
import { partitionOf, refusalsName } from "../../records/names.ts";
import type { Connection } from "../../redis/connection.ts";
import { answersOf, pairsOf } from "../../redis/pipelines.ts";
import { placeOfAccount, type RedisNodes } from "../../redis/store-facts.ts";
import { refused } from "../../scripts/surveys.ts";
import { requireOrder } from "../access/operator-values.ts";
import { compareBytes } from "./sorted-lists.ts";

const HOUR_MS = 3_600_000;
const SHOWN_MS = 8 * DAY_MS;
const PAGE = 500;
/** Of the counts by key and outcome. */
export const REFUSAL_DAYS = 8;
const LIFETIME_SECONDS = (REFUSAL_DAYS + 1) * 86_400;
const MEMBERS_MAX = 10_000;

/** `outcome` is a name in the error table. */
interface RefusalCount {
  keyId: string;
  accountId: string;
  outcome: string;
  count: number;
}

export interface HourlyRefusals extends RefusalCount {
  atMs: number;
}

const nameOfDay = (day: string): string => `tg:refusals:${day}`;
const nameOf = (atMs: number): string => nameOfDay(dayText(atMs));

/** Statistics: a call whose reply is lost may have counted. @throws GatewayError `store_unavailable` */
export async function addRefusals(connection: Connection, counts: readonly HourlyRefusals[]): Promise<void> {
  if (counts.length === 0) return;
  await Promise.all([addToDays(connection, counts), addToHours(connection, counts)]);
}

async function addToDays(connection: Connection, counts: readonly HourlyRefusals[]): Promise<void> {
  const days = Map.groupBy(counts, ({ atMs }) => nameOf(atMs));
  await Promise.all([...days].map(([name, ofDay]) => addToDay(connection, name, ofDay)));
}

async function addToDay(
  connection: Connection,
  name: string,
  counts: readonly RefusalCount[],
): Promise<void> {
  await connection.ofName(name).command(async (redis) => {
    const pipe = redis.pipeline();
    for (const { keyId, accountId, outcome, count } of counts) {
      pipe.zincrby(name, count, `${keyId} ${accountId} ${outcome}`);
    }
    pipe.zremrangebyrank(name, 0, -MEMBERS_MAX - 1);
    pipe.expire(name, LIFETIME_SECONDS);
    answersOf(await pipe.exec());
  });
}

/** Counts of an unavailable partition are dropped. */
async function addToHours(connection: Connection, counts: readonly HourlyRefusals[]): Promise<void> {
  const { partitions } = connection.known.facts ?? {};
  if (partitions === undefined) return;
  const placed = counts.map((count) => ({
    ...count,
    partition: partitionOf(count.accountId, partitions),
    ...momentOf(count.atMs),
  }));
  const calls = Map.groupBy(placed, ({ partition, day }) => `${partition} ${day}`);
  await Promise.allSettled(
    [...calls.values()].map((refusals) => {
      const { partition, day } = refusals[0]!;
      return connection.of(partition).run(refused, { partition, day, refusals });
    }),
  );
}

const startOfHourMs = (atMs: number): number => Math.floor(atMs / HOUR_MS) * HOUR_MS;

const momentOf = (atMs: number): { day: string; hour: string } => {
  const text = new Date(atMs).toISOString();
  return { day: text.slice(0, 10), hour: text.slice(11, 13) };
};

export interface AccountRefusals {
  /** Latest first. `keyId` is `*` for keys beyond those that are counted separately. */
  hours: HourlyRefusals[];
  /** Refusals, also of other accounts, that had no room. */
  uncounted: number;
}

interface RefusalFilter extends Period {
  keyId?: string | undefined;
}

export async function refusalsOf(
  nodes: RedisNodes,
  accountId: string,
  nowMs: number,
  { keyId, fromMs = 0, toMs = Infinity }: RefusalFilter = {},
): Promise<AccountRefusals> {
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  const sinceMs = startOfHourMs(Math.max(nowMs - SHOWN_MS, fromMs));
  const hours = new Map<string, HourlyRefusals>();
  let uncounted = 0;
  for (let dayMs = startOfDayMs(Math.min(nowMs, toMs - 1)); dayMs > sinceMs - DAY_MS; dayMs -= DAY_MS) {
    const name = refusalsName(partition, momentOf(dayMs).day);
    uncounted += Number((await redis.hget(name, "*")) ?? 0);
    for await (const [field, count] of fieldsOf(redis, name, `${accountId} *`)) {
      const [, hour, key = "", outcome = ""] = field.split(" ");
      const atMs = dayMs + Number(hour) * HOUR_MS;
      if (atMs < sinceMs || atMs >= toMs || (keyId !== undefined && key !== keyId)) continue;
      hours.set(`${atMs} ${field}`, { keyId: key, accountId, outcome, count: Number(count), atMs });
    }
  }
  const latestFirst = [...hours.values()].sort((a, b) => b.atMs - a.atMs || b.count - a.count);
  return { hours: latestFirst, uncounted };
}

/** Latest first; within an hour by key and outcome, since counts grow. @throws OperatorError for a cursor of another list */
export async function pageRefusals(
  nodes: RedisNodes,
  accountId: string,
  nowMs: number,
  filter: RefusalFilter,
  { cursor, limit }: PageQuery,
): Promise<AccountRefusals & { next: string | undefined }> {
  requirePageSize(limit);
  requireOrder(filter.fromMs, filter.toMs);
  const list = ["refusals", accountId, filter.keyId, filter.fromMs, filter.toMs];
  const after = cursor === undefined ? undefined : placeOf(positionOf(list, cursor));
  const { hours, uncounted } = await refusalsOf(nodes, accountId, nowMs, filter);
  const left = hours.filter((one) => after === undefined || byPlace(after, one) < 0).sort(byPlace);
  const shown = left.slice(0, limit);
  const last = left.length > shown.length ? shown.at(-1) : undefined;
  const next = last && cursorOf(list, `${last.atMs} ${last.keyId} ${last.outcome}`);
  return { hours: shown, uncounted, next };
}

type Place = Pick<HourlyRefusals, "atMs" | "keyId" | "outcome">;

function placeOf(position: string): Place {
  const [hour, keyId = "", outcome = ""] = position.split(" ");
  const atMs = Number(hour);
  if (!Number.isSafeInteger(atMs)) throw badCursor();
  return { atMs, keyId, outcome };
}

const byPlace = (a: Place, b: Place): number =>
  b.atMs - a.atMs || compareBytes(a.keyId, b.keyId) || compareBytes(a.outcome, b.outcome);

async function* fieldsOf(
  redis: Redis,
  name: string,
  match: string,
): AsyncGenerator<readonly [field: string, value: string]> {
  for await (const flat of redis.hscanStream(name, { match, count: PAGE }) as AsyncIterable<string[]>)
    yield* pairsOf(flat);
}

export async function topRefusals(nodes: RedisNodes, nowMs: number, most: number): Promise<RefusalCount[]> {
  const name = nameOf(nowMs);
  return countsIn(await nodes.ofName(name).zrevrange(name, 0, most - 1, "WITHSCORES"));
}

export async function* refusalsOfDay(nodes: RedisNodes, day: string): AsyncGenerator<RefusalCount> {
  const name = nameOfDay(day);
  for (let first = 0; first < MEMBERS_MAX; first += PAGE) {
    const page = await nodes.ofName(name).zrevrange(name, first, first + PAGE - 1, "WITHSCORES");
    yield* countsIn(page);
    if (page.length < 2 * PAGE) return;
  }
}

const countsIn = (flat: readonly string[]): RefusalCount[] =>
  pairsOf(flat).map(([member, count]) => {
    const [keyId = "", accountId = "", outcome = ""] = member.split(" ");
    return { keyId, accountId, outcome, count: Number(count) };
  });

export const startOfDayMs = (nowMs: number): number => Math.floor(nowMs / DAY_MS) * DAY_MS;
