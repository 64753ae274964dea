import { randomUUID } from "node:crypto";
import type { Redis } from "ioredis";
import { META, partitionOf } from "../records/names.ts";
import { StoreError } from "./reasons.ts";
import { isRefusedByStore } from "./script-errors.ts";
import { readInfo } from "./server-info.ts";

export interface RedisNodes {
  of(partition: number): Redis;
  /** The server of any name; for those outside the partitions, such as `tg:meta`. */
  ofName(name: string): Redis;
  all(): readonly Redis[];
  /** How many replicas may be promoted in a server's place; missing where nobody says so. */
  replicasOf?(redis: Redis): number;
  /** True if a server has all that it confirmed; undefined where nobody has looked for losses. */
  isWritable?(redis: Redis): boolean;
  requireWritable?(servers: readonly Redis[]): void;
  /** True if replicas have all that was written so far; undefined where confirmation is off. */
  confirmed?(): Promise<boolean>;
}

export function oneNode(redis: Redis): RedisNodes {
  const all = [redis];
  return { of: () => redis, ofName: () => redis, all: () => all };
}

/** The number of partitions of a new store, unless the configuration names another. */
const PARTITIONS = 64;

export interface StoreFacts {
  /** Differs between stores, but not between copies of one. */
  id: string;
  partitions: number;
  cluster: boolean;
}

export interface StoreRules {
  partitions: number;
  allowNoPersistence?: boolean | undefined;
  /** @throws StoreError for an empty store, or one of another id, in place of another that is known */
  requireMeant?(found: FoundStore): void;
}

export interface FoundStore {
  /** Undefined while it is empty. */
  id: string | undefined;
  /** The latest acceptance by an operator, Unix ms; 0 before any. */
  acceptedAt: number;
}

/** Fixes them at the first start. @throws StoreError for another layout, and a store whose keys may get lost */
export async function readFacts(nodes: RedisNodes, rules: StoreRules): Promise<StoreFacts> {
  const redis = nodes.ofName(META);
  const { partitions } = rules;
  const [cluster] = await Promise.all([
    isCluster(redis),
    ...nodes.all().map((node) => requireDurable(node, rules)),
  ]);
  const found = await storedFacts(nodes);
  rules.requireMeant?.(found);
  if (found.id !== undefined && found.partitions !== undefined) {
    requireServed(found.layout);
    // Nothing is written to a store that is not new: it may have been emptied since it was read.
    return { id: found.id, partitions: Number(found.partitions), cluster };
  }
  // Before the partitions, which say that the store is not new.
  await requireLayout(redis);
  const [fixed, id] = await Promise.all([
    fixedOnce(redis, "partitions", partitions),
    fixedOnce(redis, "id", randomUUID()),
  ]);
  return { id, partitions: Number(fixed), cluster };
}

async function requireLayout(redis: Redis): Promise<void> {
  const [layout, partitions] = await redis.hmget(META, "layout", "partitions");
  requireServed(layout ?? (partitions === null ? await fixedOnce(redis, "layout", LAYOUT) : undefined));
}

/** @throws StoreError in words that say what to change, if the server may lose keys */
export async function requireDurable(
  redis: Redis,
  { allowNoPersistence = false }: Pick<StoreRules, "allowNoPersistence">,
): Promise<void> {
  await requireNoEviction(redis);
  if (!allowNoPersistence && (await persistenceOf(redis)) === "none")
    throw new StoreError(
      NOT_PERSISTENT,
      `${HOW_TO_PERSIST}; or set store.allow_no_persistence: true for tests and demos`,
    );
}

const NOT_PERSISTENT =
  "Redis keeps nothing on disk (appendonly no, and no save points) and has lost all credits after its next start";

/** In this order: a Redis that is started with `appendonly yes` for the first time ignores its dump, and is empty. */
export const HOW_TO_PERSIST =
  "run `redis-cli CONFIG SET appendonly yes` and only then set `appendonly yes` in Redis's own configuration: with that alone it is empty after " +
  "a restart; keep `appendfsync everysec`";

/** How a server keeps what it has: save points alone lose minutes. Unknown where the user may not read its configuration. */
export type Persistence = "file" | "save points" | "none" | "unknown";

export async function persistenceOf(redis: Redis): Promise<Persistence> {
  const info = readInfo(await redis.info("persistence"));
  if (info.get("aof_enabled") === "1") return "file";
  const answer: unknown = await redis.config("GET", "save").catch((error: unknown) => {
    if (isRefusedByStore(error) || /unknown command/i.test(String(error))) return undefined;
    throw error;
  });
  const points = Array.isArray(answer) ? (answer as string[])[1] : undefined;
  if (points !== undefined) return points === "" ? "none" : "save points";
  return Number(info.get("rdb_saves") ?? 0) > 0 ? "save points" : "unknown";
}

/** @throws StoreError in words that say what to change, if the server may evict keys */
export async function requireNoEviction(redis: Redis): Promise<void> {
  const policy = readInfo(await redis.info("memory")).get("maxmemory_policy");
  if (policy === undefined || policy === "noeviction") return;
  throw new StoreError(
    `Redis has maxmemory-policy ${policy} and may evict money and limits; set \`maxmemory-policy noeviction\``,
  );
}

/** A field of `tg:meta`. It is written only if it is missing: a store that is out of memory must still be usable. */
async function fixedOnce(redis: Redis, field: string, value: string | number): Promise<string> {
  const known = await redis.hget(META, field);
  if (known !== null) return known;
  await redis.hsetnx(META, field, value);
  return (await redis.hget(META, field))!;
}

/** True if the server is a node of a Redis Cluster, where a script reaches one partition alone. */
export const isCluster = async (redis: Redis): Promise<boolean> =>
  readInfo(await redis.info("cluster")).get("cluster_enabled") === "1";

/** True if scripts may use names of several slots of one node of a cluster; Redis before 7.0 has no such flag. */
export const allowsCrossSlots = (redis: Redis): Promise<boolean> =>
  redis.eval("#!lua flags=allow-cross-slot-keys\nreturn 1", 0).then(
    () => true,
    (error: unknown) => {
      if (isRefusedByStore(error)) return false;
      throw error;
    },
  );

export async function placeOfAccount(
  nodes: RedisNodes,
  accountId: string,
): Promise<{ partition: number; redis: Redis }> {
  const partition = partitionOf(accountId, await partitionsOf(nodes));
  return { partition, redis: nodes.of(partition) };
}

/** As `placeOfAccount`, before a write. @throws OperatorError unless its server is writable */
export async function writablePlace(
  nodes: RedisNodes,
  accountId: string,
): Promise<{ partition: number; redis: Redis }> {
  const place = await placeOfAccount(nodes, accountId);
  nodes.requireWritable?.([place.redis]);
  return place;
}

export async function partitionsOf(nodes: RedisNodes, ofNewStore = () => PARTITIONS): Promise<number> {
  const [fixed, layout] = await nodes.ofName(META).hmget(META, "partitions", "layout");
  if (fixed) requireServed(layout ?? undefined);
  return fixed
    ? Number(fixed)
    : (await readFacts(nodes, { partitions: ofNewStore(), allowNoPersistence: true })).partitions;
}

/** `tg:meta`, unchecked; absent fields are undefined. */
export async function storedFacts(
  nodes: RedisNodes,
): Promise<Record<"partitions" | "layout", string | undefined> & FoundStore> {
  const values = await nodes.ofName(META).hmget(META, "id", "accepted_at", "partitions", "layout");
  const [id, acceptedAt, partitions, layout] = values.map((value) => value ?? undefined);
  return { id, acceptedAt: Number(acceptedAt ?? 0), partitions, layout };
}

/** How records are laid out, as `tg:meta layout` says. */
export const LAYOUT = "1";

/** In the place of a layout while `tollgate archive restore` fills the store. */
export const RESTORING = "restoring";

/** @returns why a used store of this layout is refused, and what to do about it; undefined for the layout of now */
export function layoutRefusal(layout: string | undefined) {
  if (layout === LAYOUT) return undefined;
  if (layout === RESTORING)
    return {
      why: "the store is being restored from the archive",
      advice:
        "wait until `tollgate archive restore` has ended, or empty Redis and restore again if that was interrupted",
    };
  return {
    why: `the store has ${layout === undefined ? "no layout" : `layout ${layout}`}, and this version of Tollgate uses layout ${LAYOUT} alone`,
    advice: "use the version that wrote it, or another Redis",
  };
}

/** @throws StoreError for a used store of another layout */
function requireServed(layout: string | undefined): void {
  const refusal = layoutRefusal(layout);
  if (refusal) throw new StoreError(refusal.why, refusal.advice);
}
