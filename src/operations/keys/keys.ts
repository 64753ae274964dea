import type { Redis } from "ioredis";
import { type KeyRestrictions, readRestrictions } from "../../domain/key-restrictions.ts";
import {
  byLimit,
  LIMITS,
  type Limits,
  type OwnLimits,
  TIER_LIMITS,
  type Tiers,
} from "../../domain/limits.ts";
import { monthOf } from "../../domain/moments.ts";
import {
  accountNames,
  digestOf,
  indexName,
  keyNames,
  partitionNames,
  partitionOf,
} from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { countersOf } from "../../records/packed-fields.ts";
import type { KeyFields } from "../../records/records.ts";
import {
  type PartitionReads,
  readsOfAll,
  readsOfMost,
  UnreadError,
  unreadInWords,
} from "../../redis/partition-reads.ts";
import { listPages, many, membersOf, pages } from "../../redis/pipelines.ts";
import { clocks } from "../../redis/server-info.ts";
import { partitionsOf, type RedisNodes } from "../../redis/store-facts.ts";

export const KEY_STATUSES = ["active", "expired", "revoked"] as const;
export type KeyStatus = (typeof KEY_STATUSES)[number];

export interface KeyRecord {
  keyId: string;
  accountId: string;
  partition: number;
  tier: string;
  /** By its server's clock. */
  status: KeyStatus;
  label: string | undefined;
  restrictions: KeyRestrictions;
  limits: OwnLimits;
  /** Over all keys of its account. */
  accountLimits: Partial<Limits>;
  /** Held and consumed in this UTC month; with rotated keys together. */
  spentThisMonth: number;
  /** The key whose record counts it, if not this one. */
  spendsIn: string | undefined;
  createdAtMs: number | undefined;
  expiresAtMs: number | undefined;
  revokedAtMs: number | undefined;
  rotatedTo: string | undefined;
  revision: number;
}

interface Place {
  keyId: string;
  partition: number;
}

/** @throws OperatorError `not_found`; UnreadError if it may be on an unavailable server */
export async function findKey(nodes: RedisNodes, idOrKey: string): Promise<KeyRecord> {
  const partitions = await partitionsOf(nodes);
  if (idOrKey.startsWith("sk_")) {
    const name = indexName(digestOf(idOrKey));
    const entry = await nodes.ofName(name).get(name);
    const [keyId = "", accountId = ""] = (entry ?? "").split(" ");
    const [key] = entry
      ? await readKeys(readsOfAll(nodes), [{ keyId, partition: partitionOf(accountId, partitions) }])
      : [];
    if (!key) throw new OperatorError("this key is not known", "not_found");
    return key;
  }
  const places = Array.from({ length: partitions }, (_, partition) => ({ keyId: idOrKey, partition }));
  const reads = readsOfMost(nodes);
  const [key] = await readKeys(reads, places);
  const unread = key ? undefined : reads.unread();
  if (unread) throw new UnreadError(`no key ${idOrKey} is found, but ${unreadInWords(unread)}; try it again`);
  // It may be among the losses of a stale server.
  if (!key) nodes.requireWritable?.(nodes.all());
  if (!key)
    throw new OperatorError(`no key ${idOrKey}`, "not_found", undefined, "`tollgate keys list` shows all");
  return key;
}

export async function readKey(
  nodes: RedisNodes,
  keyId: string,
  accountId: string,
): Promise<KeyRecord | undefined> {
  const [key] = await readKeys(readsOfAll(nodes), [
    { keyId, partition: partitionOf(accountId, await partitionsOf(nodes)) },
  ]);
  return key;
}

export async function readKeys(reads: PartitionReads, places: readonly Place[]): Promise<KeyRecord[]> {
  const records = await reads.many<KeyFields, Place>(places, (pipe, { keyId, partition }) =>
    pipe.hgetall(keyNames(partition, keyId).key),
  );
  const found = records.flatMap((fields, at) => (fields ? [{ fields, place: places[at]! }] : []));
  const others = found.flatMap(({ fields: { spends_in: keyId }, place: { partition } }) =>
    keyId === undefined ? [] : [{ keyId, partition }],
  );
  const counted = await reads.many<(string | null)[], Place>(others, (pipe, { keyId, partition }) =>
    pipe.hmget(keyNames(partition, keyId).key, "month", "counters"),
  );
  const spentOf = new Map(others.map(({ keyId }, at) => [keyId, counted[at]]));
  const accounts = found.map(({ fields, place: { partition } }) => ({
    name: accountNames(partition, fields.account_id ?? "").account,
    partition,
  }));
  const ofAccounts = await reads.many<(string | null)[], (typeof accounts)[number]>(
    accounts,
    (pipe, { name }) => pipe.hmget(name, ...TIER_LIMITS.map((limit) => limit.name)),
  );
  const nowOf = clocks();
  const keys = found.map(async ({ fields, place }, at) => {
    const nowMs = await reads.at(place.partition, nowOf);
    const [month, counters] = spentOf.get(fields.spends_in ?? "") ?? [fields.month, fields.counters];
    const { spent } = countersOf(counters);
    return nowMs === undefined
      ? undefined
      : keyRecord(place, fields, { month, spent }, ofAccounts[at] ?? [], nowMs);
  });
  return (await Promise.all(keys)).filter((key) => key !== undefined);
}

function keyRecord(
  { keyId, partition }: Place,
  fields: KeyFields,
  counted: { month: string | null | undefined; spent: string | null | undefined },
  ofAccount: readonly (string | null)[],
  nowMs: number,
): KeyRecord | undefined {
  const { account_id: accountId, tier = "" } = fields;
  if (accountId === undefined) return undefined;
  const number = (name: keyof KeyFields): number | undefined =>
    fields[name] === undefined ? undefined : Number(fields[name]);
  const [expiresAtMs, revokedAtMs] = [number("expires_at"), number("revoked_at")];
  const hasExpired = expiresAtMs !== undefined && expiresAtMs <= nowMs;
  return {
    keyId,
    partition,
    accountId,
    tier,
    status: revokedAtMs !== undefined ? "revoked" : hasExpired ? "expired" : "active",
    limits: byLimit(LIMITS, ({ name }) => number(name)),
    accountLimits: Object.fromEntries(
      TIER_LIMITS.flatMap(({ name }, at) => (ofAccount[at] == null ? [] : [[name, Number(ofAccount[at])]])),
    ),
    createdAtMs: number("created_at"),
    expiresAtMs,
    revokedAtMs,
    rotatedTo: fields.rotated_to,
    label: fields.label,
    restrictions: readRestrictions(fields.restrictions),
    spentThisMonth: Number(counted.month ?? -1) === monthOf(nowMs) ? Number(counted.spent ?? 0) : 0,
    spendsIn: fields.spends_in,
    revision: number("revision") ?? 0,
  };
}

/** The limits that a key is held to: its own or those of its tier, and those over all keys of its account if they are lower. */
export function effectiveLimits({ tier, limits, accountLimits }: KeyRecord, tiers: Tiers): Limits {
  const ofTier = tiers[tier] ?? tiers.standard!;
  return byLimit(TIER_LIMITS, ({ name }) =>
    Math.min(limits[name] ?? ofTier[name], accountLimits[name] ?? Number.POSITIVE_INFINITY),
  );
}

const FIRST_KEYS = 100;

/** In pages, in no order. As with SCAN, a key may come twice, and one that exists all the while comes at least once. */
export async function* eachKey(
  nodes: RedisNodes,
  accountId?: string,
  reads = readsOfAll(nodes),
): AsyncGenerator<KeyRecord> {
  for await (const { partition, keyIds } of keyIdPages(nodes, accountId, reads)) {
    yield* await readKeys(
      reads,
      keyIds.map((keyId) => ({ keyId, partition })),
    );
  }
}

export async function* keyIdPages(
  nodes: RedisNodes,
  accountId?: string,
  reads = readsOfAll(nodes),
): AsyncGenerator<{ partition: number; keyIds: string[] }> {
  const partitions = await partitionsOf(nodes);
  const only = accountId === undefined ? undefined : partitionOf(accountId, partitions);
  for (let partition = only ?? 0; partition < (only ?? partitions - 1) + 1; partition++) {
    const walk = (redis: Redis) =>
      accountId === undefined ? keyIdsIn(redis, partition) : keyIdsOf(redis, partition, [accountId]);
    for await (const keyIds of reads.pages(partition, walk)) yield { partition, keyIds };
  }
}

async function* keyIdsIn(redis: Redis, partition: number): AsyncGenerator<string[]> {
  for await (const accountIds of listPages(redis, partitionNames(partition).accounts))
    yield* keyIdsOf(redis, partition, accountIds);
}

/** In one round trip; most accounts have no more keys. */
async function* keyIdsOf(
  redis: Redis,
  partition: number,
  accountIds: readonly string[],
): AsyncGenerator<string[]> {
  const names = accountIds.map((id) => accountNames(partition, id).keys);
  const first = await many<[string, string[]], string>(redis, names, (pipe, name) =>
    pipe.zscan(name, "0", "COUNT", FIRST_KEYS),
  );
  yield* pages(first.flatMap(([, flat]) => membersOf(flat)));
  for (const [at, [cursor]] of first.entries()) {
    if (cursor !== "0") yield* listPages(redis, names[at] ?? "", cursor);
  }
}

export interface KeyPage {
  keys: KeyRecord[];
  more: boolean;
}

/** In the order of creation, after `after`. At most two pages are in memory, and repeated keys are dropped. */
export async function oldestKeys(
  walk: AsyncIterable<KeyRecord>,
  options: { limit: number; after?: KeyRecord | undefined; wanted?: (key: KeyRecord) => boolean },
): Promise<KeyPage> {
  const { limit, after, wanted = () => true } = options;
  let keys: KeyRecord[] = [];
  let more = false;
  const cut = (): void => {
    keys.sort(byAge);
    keys = keys.filter((key, at) => key.keyId !== keys[at - 1]?.keyId);
    if (keys.length <= limit) return;
    keys.length = limit;
    more = true;
  };
  for await (const key of walk) {
    if (after && byAge(key, after) <= 0) continue;
    if (!wanted(key)) continue;
    keys.push(key);
    if (keys.length >= 2 * limit) cut();
  }
  cut();
  return { keys, more };
}

const byAge = (a: KeyRecord, b: KeyRecord): number =>
  (a.createdAtMs ?? 0) - (b.createdAtMs ?? 0) || (a.keyId < b.keyId ? -1 : a.keyId > b.keyId ? 1 : 0);
