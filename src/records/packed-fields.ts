import { TIER_LIMITS } from "../domain/limits.ts";
import type { COUNTER_FIELDS } from "./records.ts";

// Fields of a key's or an account's record that hold several values, with spaces between (decision 0071).

type Counters = Readonly<Partial<Record<keyof typeof COUNTER_FIELDS, string>>>;

/** The words of `counters`, and what they are where nothing was counted yet; behind them are the limits. Lua: include/limits.lua. */
const COUNTERS = [
  ["clock_ms", "0"],
  ["spent", "0"],
  ...TIER_LIMITS.flatMap(({ used, counted }) =>
    typeof counted === "object"
      ? ([
          [counted.period, "-1"],
          [used, "0"],
        ] as const)
      : [],
  ),
] as const;

/** Reads the field `counters`; empty without one. */
export function countersOf(text: string | null | undefined): Counters {
  if (!text) return {};
  const words = text.split(" ");
  const counters: Record<string, string | undefined> = {};
  for (const [at, [name]] of COUNTERS.entries()) counters[name] = words[at];
  const limits = words.slice(COUNTERS.length).join(" ");
  return limits === "" ? counters : { ...counters, limits };
}

/** The field `counters`. */
export function countersText(counters: Counters): string {
  const words = COUNTERS.map(([name, none]) => counters[name] ?? none);
  return (counters.limits === undefined ? words : [...words, counters.limits]).join(" ");
}

/** A record with the values of its packed fields beside them. */
export function unpacked<Fields extends { readonly counters?: string }>(fields: Fields): Fields & Counters {
  return { ...fields, ...countersOf(fields.counters) };
}
