import { createHash } from "node:crypto";
import {
  badCursor,
  cursorOf,
  type PageQuery,
  type Period,
  positionOf,
  requirePageSize,
} from "../../records/cursors.ts";
import { META, partitionOf, refusalLogNames } from "../../records/names.ts";
import type { Connection } from "../../redis/connection.ts";
import { answersOf } from "../../redis/pipelines.ts";
import { storeNowMs } from "../../redis/server-info.ts";
import { placeOfAccount, type RedisNodes } from "../../redis/store-facts.ts";
import { requireOrder } from "../access/operator-values.ts";

// The latest refusals of each key, one by one. Statistics: gateways write them in the background, and drop what has no room.

const HOUR_MS = 3_600_000;
const KEPT_MS = 24 * HOUR_MS;
export const REFUSALS_OF_KEY = 1000;
/** Keys of a partition whose refusals are kept; those that were refused longest ago are dropped. 64 partitions: 200 MB at most. */
const KEYS_MAX = 30;
/** Request ids of an hour that can be found by themselves. */
const IDS_OF_HOUR = 50_000;
const DIGEST_CHARS = 12;

/** One answer of 4xx to a key. */
export interface Refusal {
  atMs: number;
  accountId: string;
  keyId: string;
  /** A name in the error table. */
  outcome: string;
  limit: number | undefined;
  used: number | undefined;
  retryAfterSeconds: number | undefined;
  requestId: string;
  /** As the customer has it: the client's own, if it sent one. */
  shownId: string;
}

const idsName = (atMs: number): string => `tg:refused-ids:${Math.floor(atMs / HOUR_MS)}`;
const digestOf = (id: string): string =>
  createHash("sha256").update(id).digest("base64url").slice(0, DIGEST_CHARS);

/** @throws GatewayError `store_unavailable` */
export async function addToRefusalLogs(connection: Connection, refusals: readonly Refusal[]): Promise<void> {
  const { partitions } = connection.known.facts ?? {};
  if (partitions === undefined) return;
  const placed = Map.groupBy(refusals, ({ accountId }) => partitionOf(accountId, partitions));
  const byHour = Map.groupBy(refusals, ({ atMs }) => idsName(atMs));
  await Promise.allSettled([
    ...[...placed].map(([partition, some]) => addToPartition(connection, partition, some)),
    ...[...byHour].map(([name, some]) => addIds(connection, name, some)),
  ]);
}

async function addToPartition(
  connection: Connection,
  partition: number,
  refusals: readonly Refusal[],
): Promise<void> {
  if (connection.isFrozen(partition)) return;
  const { logs } = refusalLogNames(partition, "");
  const byKey = Map.groupBy(refusals, ({ keyId }) => keyId);
  await connection.of(partition).command(async (redis) => {
    const pipe = redis.pipeline();
    for (const [keyId, own] of byKey) {
      const { log } = refusalLogNames(partition, keyId);
      pipe.lpush(log, ...own.map(textOf));
      pipe.ltrim(log, 0, REFUSALS_OF_KEY - 1);
      pipe.pexpire(log, KEPT_MS);
      pipe.zadd(logs, own.at(-1)!.atMs, keyId);
    }
    pipe.pexpire(logs, KEPT_MS);
    pipe.zrange(logs, "0", String(-KEYS_MAX - 1));
    pipe.zremrangebyrank(logs, 0, -KEYS_MAX - 1);
    const dropped = answersOf<string[]>(await pipe.exec()).at(-2) ?? [];
    if (dropped.length > 0)
      await redis.unlink(...dropped.map((keyId) => refusalLogNames(partition, keyId).log));
  });
}

async function addIds(connection: Connection, name: string, refusals: readonly Refusal[]): Promise<void> {
  await connection.ofName(name).command(async (redis) => {
    if ((await redis.hlen(name)) >= IDS_OF_HOUR) return;
    const fields = refusals.flatMap(({ requestId, shownId, keyId, accountId }) => {
      const ids = requestId === shownId ? [requestId] : [requestId, shownId];
      return ids.flatMap((id) => [digestOf(id), `${keyId} ${accountId}`]);
    });
    const pipe = redis.pipeline();
    pipe.hset(name, ...fields);
    pipe.pexpire(name, KEPT_MS + HOUR_MS);
    answersOf(await pipe.exec());
  });
}

const textOf = ({ atMs, outcome, limit, used, retryAfterSeconds, requestId, shownId }: Refusal): string =>
  [atMs, outcome, limit ?? "-", used ?? "-", retryAfterSeconds ?? "-", requestId, shownId].join(" ");

function refusalOf(text: string, keyId: string, accountId: string): Refusal {
  const [atMs, outcome = "", limit, used, retryAfter, requestId = "", shownId = ""] = text.split(" ");
  const number = (word: string | undefined): number | undefined =>
    word === undefined || word === "-" ? undefined : Number(word);
  return {
    ...{ atMs: Number(atMs), accountId, keyId, outcome, requestId, shownId },
    ...{ limit: number(limit), used: number(used), retryAfterSeconds: number(retryAfter) },
  };
}

/** Latest first; gateways write at different moments, so they are sorted by when they happened. */
async function refusalsOfKey(nodes: RedisNodes, keyId: string, accountId: string): Promise<Refusal[]> {
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  const { log } = refusalLogNames(partition, keyId);
  const texts = await redis.lrange(log, 0, REFUSALS_OF_KEY - 1);
  return texts.map((text) => refusalOf(text, keyId, accountId)).sort(byTime);
}

const hasId = ({ requestId, shownId }: Refusal, id: string): boolean => requestId === id || shownId === id;

const byTime = (a: Refusal, b: Refusal): number =>
  b.atMs - a.atMs || (a.requestId < b.requestId ? 1 : a.requestId > b.requestId ? -1 : 0);

interface RefusalQuery extends PageQuery, Period {
  outcome?: string | undefined;
  /** Ours, or the client's own. */
  requestId?: string | undefined;
}

/** The last 1,000 refusals of a key, of the last day. @throws OperatorError for a cursor of another list */
export async function pageRefusalsOfKey(
  nodes: RedisNodes,
  { keyId, accountId }: { keyId: string; accountId: string },
  { outcome, requestId, fromMs = 0, toMs = Infinity, cursor, limit }: RefusalQuery,
): Promise<{ refusals: Refusal[]; next: string | undefined }> {
  requirePageSize(limit);
  requireOrder(fromMs, toMs);
  const list = ["refusals-of-key", keyId, outcome, requestId, fromMs, toMs === Infinity ? undefined : toMs];
  const [afterMs, afterId = ""] = positionOf(list, cursor)?.split(" ") ?? [];
  if (afterMs !== undefined && !/^\d{1,15}$/.test(afterMs)) throw badCursor();
  const place = afterMs === undefined ? undefined : { atMs: Number(afterMs), requestId: afterId };
  const found = (await refusalsOfKey(nodes, keyId, accountId))
    .filter(({ atMs }) => atMs >= fromMs && atMs < toMs)
    .filter((one) => outcome === undefined || one.outcome === outcome)
    .filter((one) => requestId === undefined || hasId(one, requestId))
    .filter((one) => place === undefined || byTime(place as Refusal, one) < 0);
  const refusals = found.slice(0, limit);
  const last = found.length > limit ? refusals.at(-1) : undefined;
  return { refusals, next: last && cursorOf(list, `${last.atMs} ${last.requestId}`) };
}

/** The refusal that a request's id names: ours, or the client's own. */
export async function findRefusal(nodes: RedisNodes, id: string): Promise<Refusal | undefined> {
  const field = digestOf(id);
  const nowMs = await storeNowMs(nodes.ofName(META));
  for (let atMs = nowMs; atMs > nowMs - KEPT_MS - HOUR_MS; atMs -= HOUR_MS) {
    const name = idsName(atMs);
    const place = await nodes.ofName(name).hget(name, field);
    if (place === null) continue;
    const [keyId = "", accountId = ""] = place.split(" ");
    const refusals = await refusalsOfKey(nodes, keyId, accountId);
    const refusal = refusals.find((one) => hasId(one, id));
    if (refusal) return refusal;
  }
  return undefined;
}
