import { accountNames } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { storeNowMs } from "../../redis/server-clock.ts";
import { USE_FIELDS, type Use, useOf } from "../limit-use.ts";

const WINDOW_MS = 60_000;
/** Entries of a window that are looked at: a fraction of a millisecond of Redis. */
const LOOKED_AT_MAX = 5000;

/**
 * What all keys of an account together use of its limits at this moment.
 * @returns undefined for an account without limits over its keys: nothing is counted for it
 */
export async function useOfAccount(
  nodes: RedisNodes,
  partition: number,
  accountId: string,
): Promise<Use | undefined> {
  const redis = nodes.of(partition);
  const names = accountNames(partition, accountId);
  const [limited, clockMs, ...values] = await redis.hmget(
    names.account,
    "limited",
    "clock_ms",
    ...USE_FIELDS,
  );
  if (!limited) return undefined;
  const [nowMs, stamps, slots] = await Promise.all([
    storeNowMs(redis),
    redis.lrange(names.window, 0, LOOKED_AT_MAX - 1),
    redis.scard(names.slots),
  ]);
  const atMs = Math.max(nowMs, Number(clockMs ?? 0));
  const window = stamps.filter((stamp) => Number(stamp) > atMs - WINDOW_MS).length;
  return useOf(values, atMs, { window, slots });
}
