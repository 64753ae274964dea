import { type LimitState, type Limits, TIER_LIMITS } from "../domain/limits.ts";
import { accountNames } from "../records/names.ts";
import { countersOf } from "../records/packed-fields.ts";
import { storeNowMs } from "../redis/server-info.ts";
import type { RedisNodes } from "../redis/store-facts.ts";

type TierLimit = (typeof TIER_LIMITS)[number];

/** Use and limit, by the names of both. Null: unknown, or no limit. */
export type Use = Partial<Record<TierLimit["used"] | TierLimit["name"], number | null>>;

export const USE_FIELDS = ["counters", ...TIER_LIMITS.map(({ name }) => name)];

const use = (limits: readonly TierLimit[], values: (limit: TierLimit) => (number | null)[]): Use =>
  Object.fromEntries(
    limits.flatMap((limit) => {
      const [used = null, most = null] = values(limit);
      return [
        [limit.used, used],
        [limit.name, most],
      ];
    }),
  );

/** @param more limits where the record has none, and known use of window and slots */
export function useOf(
  [counters, ...values]: readonly (string | null)[],
  atMs: number,
  more: Partial<Limits & Record<"window" | "slots", number>>,
): Use {
  const own = TIER_LIMITS.map(({ name }, at) => [name, values[at] || undefined] as const);
  const record = new Map<string, string | undefined>([...Object.entries(countersOf(counters)), ...own]);
  return use(TIER_LIMITS, ({ name, used, counted }) => {
    const limit = Number(record.get(name) ?? more[name] ?? Number.NaN);
    const most = Number.isNaN(limit) ? null : limit;
    if (typeof counted !== "object")
      return more[counted] === undefined ? [null, null] : [more[counted], most];
    const isNow = Number(record.get(counted.period) ?? -1) === Math.floor(atMs / counted.ms);
    return [isNow ? Number(record.get(used) ?? 0) : 0, most];
  });
}

export const useNow = ({ limit, remaining, concurrentLimit, active }: LimitState): Use =>
  use(
    TIER_LIMITS.filter(({ counted }) => typeof counted !== "object"),
    ({ counted }) => (counted === "window" ? [limit - remaining, limit] : [active, concurrentLimit]),
  );

const WINDOW_MS = 60_000;
const LOOKED_AT_MAX = 5000;

/** Undefined for an account without limits of its own: nothing is counted. */
export async function useOfAccount(
  nodes: RedisNodes,
  partition: number,
  accountId: string,
): Promise<Use | undefined> {
  const redis = nodes.of(partition);
  const names = accountNames(partition, accountId);
  const [limited, ...values] = await redis.hmget(names.account, "limited", ...USE_FIELDS);
  if (!limited) return undefined;
  const [nowMs, stamps, slots] = await Promise.all([
    storeNowMs(redis),
    redis.lrange(names.window, 0, LOOKED_AT_MAX - 1),
    redis.scard(names.slots),
  ]);
  const atMs = Math.max(nowMs, Number(countersOf(values[0]).clock_ms ?? 0));
  const window = stamps.filter((stamp) => Number(stamp) > atMs - WINDOW_MS).length;
  return useOf(values, atMs, { window, slots });
}
