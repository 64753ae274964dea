import type { Redis } from "ioredis";
import type { Tiers } from "../../domain/limits.ts";
import { keyNames, keyRef } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { readsOfAll, readsOfMost, type Unread } from "../../redis/partition-reads.ts";
import { many } from "../../redis/pipelines.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { clocks } from "../../redis/server-clock.ts";
import { inspect } from "../../scripts/inspect.ts";
import { USE_FIELDS, type Use, useNow, useOf } from "../limit-use.ts";
import { keyIdPages } from "./walk-keys.ts";

export const KEYS_LOOKED_AT_MAX = 20_000;

/** What a key has used: admissions of the UTC day, and the numbers of the moment as its headers would say them. */
export interface KeyUse {
  keyId: string;
  accountId: string;
  tier: string;
  partition: number;
  /** Of the limits of a UTC period. */
  use: Use;
  /** Of the others; undefined for a key that is revoked or expired, or could not be read. */
  now: Use | undefined;
}

/** Keys by what they used today; `complete` is false when there were more keys than are looked at. */
export interface TopKeys {
  keys: KeyUse[];
  keysLookedAt: number;
  complete: boolean;
  /** Nothing of these is among the keys. */
  unread: Unread | undefined;
}

/** Reads key records in pages and keeps the most used of the day. No page holds Redis for long. */
export async function topKeysByUse(nodes: RedisNodes, tiers: Tiers, most: number): Promise<TopKeys> {
  const reads = readsOfMost(nodes);
  const nowOf = clocks();
  /** By key id: a scan may show a key twice. */
  const used = new Map<string, Omit<KeyUse, "now">>();
  let keysLookedAt = 0;
  let complete = true;
  for await (const { partition, keyIds } of keyIdPages(nodes, undefined, reads)) {
    const ids = keyIds.slice(0, KEYS_LOOKED_AT_MAX - keysLookedAt);
    const keys = await reads.at(partition, async (redis) =>
      usesOfPeriods(redis, partition, ids, await nowOf(redis), tiers),
    );
    for (const key of keys ?? []) if (usedToday(key) > 0) used.set(key.keyId, key);
    keysLookedAt += ids.length;
    complete = ids.length === keyIds.length;
    if (!complete) break;
  }
  const top = [...used.values()].sort((a, b) => usedToday(b) - usedToday(a)).slice(0, most);
  const keys = await withUseNow(nodes, top, tiers, reads);
  return { keys, keysLookedAt, complete, unread: reads.unread() };
}

/**
 * What some keys of one account have used.
 * @param keyIds at most some hundred
 */
export async function usesOfKeys(
  nodes: RedisNodes,
  partition: number,
  keyIds: readonly string[],
  tiers: Tiers,
): Promise<KeyUse[]> {
  const redis = nodes.of(partition);
  const nowMs = await clocks()(redis);
  return withUseNow(nodes, await usesOfPeriods(redis, partition, keyIds, nowMs, tiers), tiers);
}

const usedToday = ({ use }: Pick<KeyUse, "use">): number => use.day_count ?? 0;

/** Keys that the store does not know are left out. */
async function usesOfPeriods(
  redis: Redis,
  partition: number,
  keyIds: readonly string[],
  nowMs: number,
  tiers: Tiers,
): Promise<Omit<KeyUse, "now">[]> {
  const records = await many<(string | null)[], string>(redis, keyIds, (pipe, keyId) =>
    pipe.hmget(keyNames(partition, keyId).key, "account_id", "tier", ...USE_FIELDS),
  );
  return records.flatMap(([accountId, tier, ...values], at) => {
    if (!accountId) return [];
    // The limit in force is the key's own before its tier's, as the scripts have it.
    const limits = tiers[tier ?? ""] ?? tiers.standard;
    const use = useOf(values, nowMs, { ...limits });
    return [{ keyId: keyIds[at] ?? "", accountId, tier: tier ?? "", partition, use }];
  });
}

/** Adds what each key has used at this moment; one read-only script call each. */
export async function withUseNow<Key extends { keyId: string; accountId: string; partition: number }>(
  nodes: RedisNodes,
  keys: readonly Key[],
  tiers: Tiers,
  reads = readsOfAll(nodes),
): Promise<(Key & Pick<KeyUse, "now">)[]> {
  return Promise.all(
    keys.map(async (key) => {
      const ref = keyRef(key.keyId, key.accountId, key.partition);
      const found = await reads.at(key.partition, (redis) =>
        scriptsOf(redis).run(inspect, { key: ref, tiers }),
      );
      if (found?.outcome !== "known") return { ...key, now: undefined };
      return { ...key, now: useNow(found.state) };
    }),
  );
}
