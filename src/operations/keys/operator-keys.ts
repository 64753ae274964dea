import type { Redis } from "ioredis";
import type { Tiers } from "../../domain/limits.ts";
import { keyNames, keyRef } from "../../records/names.ts";
import { readsOfAll, readsOfMost } from "../../redis/partition-reads.ts";
import { many } from "../../redis/pipelines.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { clocks } from "../../redis/server-info.ts";
import type { RedisNodes } from "../../redis/store-facts.ts";
import { inspect } from "../../scripts/tasks.ts";
import { USE_FIELDS, type Use, useNow, useOf } from "../limit-use.ts";
import { keyIdPages } from "./keys.ts";

export const KEYS_LOOKED_AT_MAX = 20_000;

export interface KeyUse {
  keyId: string;
  accountId: string;
  tier: string;
  partition: number;
  use: Use;
  /** Of window and slots; undefined for an ended or unread key. */
  now: Use | undefined;
}

/** In pages, so that none blocks Redis for long. */
export async function topKeysByUse(nodes: RedisNodes, tiers: Tiers, most: number) {
  const reads = readsOfMost(nodes);
  const nowOf = clocks();
  /** A scan may show a key twice. */
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
    // The key's own limit comes before its tier's.
    const limits = tiers[tier ?? ""] ?? tiers.standard;
    const use = useOf(values, nowMs, { ...limits });
    return [{ keyId: keyIds[at] ?? "", accountId, tier: tier ?? "", partition, use }];
  });
}

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
