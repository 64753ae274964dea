import { type LimitState, type Limits, TIER_LIMITS } from "../domain/limits.ts";

type TierLimit = (typeof TIER_LIMITS)[number];

/** What is used of each limit, and the limit, by the names of both. Null: not known, or no limit. */
export type Use = Partial<Record<TierLimit["used"] | TierLimit["name"], number | null>>;

/** Fields of a key's or account's record that `useOf` reads. */
export const USE_FIELDS = TIER_LIMITS.flatMap(({ name, used, counted }) =>
  typeof counted === "object" ? [name, counted.period, used] : [name],
);

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

/**
 * @param values of USE_FIELDS
 * @param more the limits where the record has none, and what is used of the window and of the slots, where that is known
 */
export function useOf(
  values: readonly (string | null)[],
  atMs: number,
  more: Partial<Limits & Record<"window" | "slots", number>>,
): Use {
  const record = new Map(USE_FIELDS.map((field, at) => [field, values[at] || undefined]));
  return use(TIER_LIMITS, ({ name, used, counted }) => {
    const limit = Number(record.get(name) ?? more[name] ?? Number.NaN);
    const most = Number.isNaN(limit) ? null : limit;
    if (typeof counted !== "object")
      return more[counted] === undefined ? [null, null] : [more[counted], most];
    const isNow = Number(record.get(counted.period) ?? -1) === Math.floor(atMs / counted.ms);
    return [isNow ? Number(record.get(used) ?? 0) : 0, most];
  });
}

/** Of window and slots alone, by the numbers that a script answered. */
export const useNow = ({ limit, remaining, concurrentLimit, active }: LimitState): Use =>
  use(
    TIER_LIMITS.filter(({ counted }) => typeof counted !== "object"),
    ({ counted }) => (counted === "window" ? [limit - remaining, limit] : [active, concurrentLimit]),
  );
