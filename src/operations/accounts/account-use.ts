import { accountNames } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { storeNowMs } from "../../redis/server-clock.ts";

const WINDOW_MS = 60_000;
const DAY_MS = 86_400_000;
/** Entries of a window that are looked at: a fraction of a millisecond of Redis. */
const LOOKED_AT_MAX = 5000;

/** What all keys of an account together use of its limits at this moment; a limit is undefined where there is none. */
export interface AccountUse {
  windowUsed: number;
  rateLimit: number | undefined;
  active: number;
  maxConcurrent: number | undefined;
  dayCount: number;
  dailyLimit: number | undefined;
}

/** @returns undefined for an account without limits over its keys: nothing is counted for it */
export async function useOfAccount(
  nodes: RedisNodes,
  partition: number,
  accountId: string,
): Promise<AccountUse | undefined> {
  const redis = nodes.of(partition);
  const names = accountNames(partition, accountId);
  const fields = ["limited", "rate_limit", "max_concurrent", "daily_limit", "clock_ms", "day", "day_count"];
  const [limited, rateLimit, maxConcurrent, dailyLimit, clockMs, day, dayCount] = await redis.hmget(
    names.account,
    ...fields,
  );
  if (!limited) return undefined;
  const limitOf = (text: string | null | undefined) => (text ? Number(text) : undefined);
  const [nowMs, window, active] = await Promise.all([
    storeNowMs(redis),
    redis.lrange(names.window, 0, LOOKED_AT_MAX - 1),
    redis.scard(names.slots),
  ]);
  const atMs = Math.max(nowMs, Number(clockMs ?? 0));
  return {
    // Newest first.
    windowUsed: window.filter((stamp) => Number(stamp) > atMs - WINDOW_MS).length,
    rateLimit: limitOf(rateLimit),
    active,
    maxConcurrent: limitOf(maxConcurrent),
    dayCount: Number(day ?? -1) === Math.floor(atMs / DAY_MS) ? Number(dayCount ?? 0) : 0,
    dailyLimit: limitOf(dailyLimit),
  };
}
