import type { Redis } from "ioredis";
import type { Tiers } from "../domain/limits.ts";
import { clocks, keyIdPages } from "./keys.ts";
import { keyNames, keyRef } from "./names.ts";
import type { RedisNodes } from "./nodes.ts";
import { many } from "./pipelines.ts";
import { scriptsOf } from "./script-runner.ts";
import { inspect } from "./scripts/inspect.ts";

/** Keys looked at, at most, to find those with the most use. */
export const KEYS_LOOKED_AT_MAX = 20_000;
const DAY_MS = 86_400_000;

/** What a key has used: admissions of the UTC day, and the numbers of the moment as its headers would say them. */
export interface KeyUse {
  keyId: string;
  accountId: string;
  tier: string;
  partition: number;
  dayCount: number;
  dailyLimit: number;
  /** Undefined for a key that is revoked or expired. */
  now: { windowUsed: number; rateLimit: number; active: number; maxConcurrent: number } | undefined;
}

/** Keys by what they used today; `complete` is false when there were more keys than are looked at. */
export interface TopKeys {
  keys: KeyUse[];
  keysLookedAt: number;
  complete: boolean;
}

/** Reads key records in pages and keeps the most used of the day. No page holds Redis for long. */
export async function topKeysByUse(nodes: RedisNodes, tiers: Tiers, most: number): Promise<TopKeys> {
  const nowOf = clocks();
  /** By key id: a scan may show a key twice. */
  const used = new Map<string, Omit<KeyUse, "now">>();
  let keysLookedAt = 0;
  let complete = true;
  for await (const { partition, keyIds } of keyIdPages(nodes)) {
    const ids = keyIds.slice(0, KEYS_LOOKED_AT_MAX - keysLookedAt);
    const redis = nodes.of(partition);
    const today = Math.floor((await nowOf(redis)) / DAY_MS);
    for (const use of await usedToday(redis, partition, ids, today, tiers)) used.set(use.keyId, use);
    keysLookedAt += ids.length;
    complete = ids.length === keyIds.length;
    if (!complete) break;
  }
  const top = [...used.values()].sort((a, b) => b.dayCount - a.dayCount).slice(0, most);
  return { keys: await withUseNow(nodes, top, tiers), keysLookedAt, complete };
}

async function usedToday(
  redis: Redis,
  partition: number,
  keyIds: readonly string[],
  today: number,
  tiers: Tiers,
): Promise<Omit<KeyUse, "now">[]> {
  const records = await many<(string | null)[], string>(redis, keyIds, (pipe, keyId) =>
    pipe.hmget(keyNames(partition, keyId).key, "account_id", "tier", "day", "day_count", "daily_limit"),
  );
  return records.flatMap((record, at) => {
    const [accountId, tier, day, dayCount, ownLimit] = record.map((field) => field ?? "");
    if (Number(day) !== today || Number(dayCount) === 0) return [];
    // The limit in force is the key's own before its tier's, as the scripts have it.
    const limits = tiers[tier ?? ""] ?? tiers.standard;
    return [
      {
        keyId: keyIds[at] ?? "",
        accountId: accountId ?? "",
        tier: tier ?? "",
        partition,
        dayCount: Number(dayCount),
        dailyLimit: Number(ownLimit || limits?.dailyLimit),
      },
    ];
  });
}

/** Adds what each key has used at this moment; one read-only script call each. */
export async function withUseNow<Key extends { keyId: string; accountId: string; partition: number }>(
  nodes: RedisNodes,
  keys: readonly Key[],
  tiers: Tiers,
): Promise<(Key & Pick<KeyUse, "now">)[]> {
  return Promise.all(
    keys.map(async (key) => {
      const ref = keyRef(key.keyId, key.accountId, key.partition);
      const { outcome, state } = await scriptsOf(nodes.of(key.partition)).run(inspect, { key: ref, tiers });
      const { rateLimit, remaining, active, maxConcurrent } = state;
      const now = { windowUsed: rateLimit - remaining, rateLimit, active, maxConcurrent };
      return { ...key, now: outcome === "known" ? now : undefined };
    }),
  );
}
