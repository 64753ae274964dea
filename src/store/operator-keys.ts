import type { Redis } from "ioredis";
import type { Tiers } from "../core/limits.ts";
import { packTiers } from "./calls.ts";
import { storeNowMs } from "./keys.ts";
import { accountNames, keyRef, partitionNames } from "./names.ts";
import { partitionsOf } from "./partitions.ts";
import { many } from "./pipelines.ts";
import { scriptsOf } from "./scripts.ts";

/** Keys looked at, at most, to find those with the most use. */
export const KEYS_LOOKED_AT_MAX = 20_000;
/** Names or records asked for at a time: about a millisecond of Redis. */
const PAGE = 500;
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
export async function topKeysByUse(redis: Redis, tiers: Tiers, most: number): Promise<TopKeys> {
  const today = Math.floor((await storeNowMs(redis)) / DAY_MS);
  const used: Omit<KeyUse, "now">[] = [];
  let keysLookedAt = 0;
  for await (const { partition, keyIds } of keyPages(redis)) {
    const ids = keyIds.slice(0, KEYS_LOOKED_AT_MAX - keysLookedAt);
    for (let at = 0; at < ids.length; at += PAGE) {
      used.push(...(await usedToday(redis, partition, ids.slice(at, at + PAGE), today, tiers)));
    }
    keysLookedAt += ids.length;
    if (ids.length < keyIds.length) {
      return { keys: await withUseNow(redis, topOf(used, most), tiers), keysLookedAt, complete: false };
    }
  }
  return { keys: await withUseNow(redis, topOf(used, most), tiers), keysLookedAt, complete: true };
}

const topOf = <Use extends { dayCount: number }>(used: Use[], most: number): Use[] =>
  used.sort((a, b) => b.dayCount - a.dayCount).slice(0, most);

/** Key ids of all accounts, some hundred at a time. */
async function* keyPages(redis: Redis): AsyncGenerator<{ partition: number; keyIds: string[] }> {
  const partitions = await partitionsOf(redis);
  for (let partition = 0; partition < partitions; partition++) {
    let cursor = "0";
    do {
      const [next, accountIds] = await redis.sscan(partitionNames(partition).accounts, cursor, "COUNT", PAGE);
      cursor = next;
      const keyIds = await many<string[], string>(redis, accountIds, (pipe, accountId) =>
        pipe.smembers(accountNames(partition, accountId).keys),
      );
      if (keyIds.length > 0) yield { partition, keyIds: keyIds.flat() };
    } while (cursor !== "0");
  }
}

async function usedToday(
  redis: Redis,
  partition: number,
  keyIds: readonly string[],
  today: number,
  tiers: Tiers,
): Promise<Omit<KeyUse, "now">[]> {
  const records = await many<(string | null)[], string>(redis, keyIds, (pipe, keyId) =>
    pipe.hmget(
      keyRef(keyId, "", partition).names.key,
      "account_id",
      "tier",
      "day",
      "day_count",
      "daily_limit",
    ),
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
  redis: Redis,
  keys: readonly Key[],
  tiers: Tiers,
): Promise<(Key & Pick<KeyUse, "now">)[]> {
  const { inspect } = scriptsOf(redis);
  return Promise.all(
    keys.map(async (key) => {
      const { names } = keyRef(key.keyId, key.accountId, key.partition);
      const reply = await inspect([names.key, names.window, names.slots], ["", packTiers(tiers), "", 0]);
      const [rateLimit = 0, remaining = 0, , maxConcurrent = 0, active = 0] = reply.slice(2).map(Number);
      const now = { windowUsed: rateLimit - remaining, rateLimit, active, maxConcurrent };
      return { ...key, now: reply[0] === "known" ? now : undefined };
    }),
  );
}
