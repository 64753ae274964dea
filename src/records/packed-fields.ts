import { TIER_LIMITS } from "../domain/limits.ts";
import type { AccountFields, AccountRecord, COUNTER_FIELDS, MONEY_FIELDS } from "./records.ts";

// Fields of a key's or an account's record that hold several values, with spaces between (decision 0004).

/** In place of an id. */
const NO_ENTRY = "-";

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

export function countersOf(text: string | null | undefined): Counters {
  if (!text) return {};
  const words = text.split(" ");
  const counters: Record<string, string | undefined> = {};
  for (const [at, [name]] of COUNTERS.entries()) counters[name] = words[at];
  const limits = words.slice(COUNTERS.length).join(" ");
  return limits === "" ? counters : { ...counters, limits };
}

export function countersText(counters: Counters): string {
  const words = COUNTERS.map(([name, none]) => counters[name] ?? none);
  return (counters.limits === undefined ? words : [...words, counters.limits]).join(" ");
}

export function unpacked<Fields extends { readonly counters?: string }>(fields: Fields): Fields & Counters {
  return { ...fields, ...countersOf(fields.counters) };
}

type Money = Readonly<Partial<Record<keyof typeof MONEY_FIELDS, string>>>;

/** The words of `money`, and what they are before anything happened. Lua: include/money.lua. */
const MONEY: readonly (readonly [name: keyof Money, none: string])[] = [
  ["balance", "0"],
  ["held", "0"],
  ["total_used", "0"],
  ["total_requests", "0"],
  ["last_entry", NO_ENTRY],
];

/** Fields of an account that `+` in its money stands for. */
const EXTRAS: readonly (keyof AccountFields)[] = [
  "status",
  "limited",
  "blocked_until",
  "price_multiplier",
  "alerts",
  "webhooks",
];

/** An account's money, from the field `money`; nothing without one. */
export function moneyOf(text: string | null | undefined): Money {
  if (!text) return {};
  const words = text.split(" ");
  const money: Partial<Record<keyof Money, string>> = {};
  for (const [at, [name]] of MONEY.entries()) {
    const word = words[at];
    if (word !== undefined && word !== NO_ENTRY) money[name] = word;
  }
  return money;
}

export function moneyText(record: AccountRecord): string {
  const words = MONEY.map(([name, none]) => record[name] || none);
  if (EXTRAS.some((name) => record[name] !== undefined)) words.push("+");
  return words.join(" ");
}

export const accountOf = (fields: AccountFields): AccountRecord => ({ ...fields, ...moneyOf(fields.money) });
