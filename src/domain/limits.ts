import type { ErrorName } from "./errors.ts";
import { CREDITS_MAX } from "./money.ts";

/** Where a limit may stand: in a tier, with a key, and over all keys of an account; or with a key only. */
const EVERYWHERE = ["tier", "key", "account"] as const;
const OF_KEY = ["key"] as const;

interface LimitDeclaration {
  /** In settings, records and on the wire; with dashes on the command line. */
  name: string;
  /** Its unit, in full and in short; its text for customers in `GET /credits`; and the heading of the used part. */
  unit: string;
  short: string;
  forCustomers?: string;
  title: string;
  on: typeof EVERYWHERE | typeof OF_KEY;
  /** The largest in a tier and on the command line, and the largest in a record. */
  max: number;
  storedMax: number;
  /** Its letter in the scripts. Money is never in shadow mode: a hold is a hold. */
  shadow?: string;
  refusal: ErrorName;
  /** The name of what is used, and where that is counted: a UTC period takes two fields of the record. */
  used: string;
  counted: "window" | "slots" | "money" | { period: string; ms: number };
  /** In the tiers that there are without a configuration. */
  tiers?: { standard: number; enterprise: number };
  example: { limit: number; used: number };
}

/** Replies carry limits as integers, which are exact far beyond it. */
const STORED_MAX = 1_000_000_000;

/**
 * Every limit of a key, in the order in which scripts check and take them. Configuration, records, API, command line, archive and console
 * follow from this list; `src/ledger/key-check.ts` shares nothing with it. A process's limits are in config/sections/listeners.ts.
 */
export const LIMITS = [
  {
    name: "rate_limit",
    unit: "requests per rolling 60 seconds",
    short: "requests per 60 s",
    forCustomers: "Generation requests in any 60 seconds.",
    title: "Last 60 s",
    on: EVERYWHERE,
    max: 100_000,
    storedMax: STORED_MAX,
    shadow: "r",
    refusal: "rate_limited",
    used: "window_used",
    counted: "window",
    tiers: { standard: 20, enterprise: 100 },
    example: { limit: 60, used: 12 },
  },
  {
    name: "max_concurrent",
    unit: "tasks at the same time",
    short: "tasks at a time",
    forCustomers: "Tasks at the same time.",
    title: "Slots",
    on: EVERYWHERE,
    max: 10_000,
    storedMax: STORED_MAX,
    shadow: "c",
    refusal: "concurrency_limited",
    used: "active",
    counted: "slots",
    tiers: { standard: 3, enterprise: 10 },
    example: { limit: 5, used: 2 },
  },
  {
    name: "daily_limit",
    unit: "requests per UTC day",
    short: "requests per UTC day",
    forCustomers: "Generation requests per day; midnight UTC starts a new one.",
    title: "Today",
    on: EVERYWHERE,
    max: STORED_MAX,
    storedMax: STORED_MAX,
    shadow: "d",
    refusal: "daily_limited",
    used: "day_count",
    counted: { period: "day", ms: 86_400_000 },
    tiers: { standard: 500, enterprise: 10_000 },
    example: { limit: 1000, used: 310 },
  },
  {
    name: "monthly_credits",
    unit: "credits that requests of one UTC month may hold and consume together",
    short: "credits per UTC month",
    title: "This month",
    on: OF_KEY,
    max: CREDITS_MAX,
    storedMax: CREDITS_MAX,
    refusal: "spend_capped",
    used: "spent_this_month",
    counted: "money",
    example: { limit: 10_000, used: 1050 },
  },
] as const satisfies readonly LimitDeclaration[];

type Limit = (typeof LIMITS)[number];
type TierLimit = Extract<Limit, { on: typeof EVERYWHERE }>;
export type LimitName = Limit["name"];

type OfPeriod = Extract<Limit, { counted: object }>;
/** Fields of a record in which the limits of a UTC period are counted: the period, and the count. */
export type PeriodField = OfPeriod["counted"]["period"] | OfPeriod["used"];

/** Limits that every tier sets, and that an account may have over all its keys. */
export const TIER_LIMITS = LIMITS.filter((limit): limit is TierLimit => limit.on === EVERYWHERE);
/** Spend caps, which only a key may have. A key that lacks one has no cap; of the other limits it then has that of its tier. */
export const CAPS = LIMITS.filter((limit): limit is Exclude<Limit, TierLimit> => limit.on === OF_KEY);

export function byLimit<One extends Limit, Value>(
  limits: readonly One[],
  value: (limit: One) => Value,
): Record<One["name"], Value> {
  const values: Record<string, Value> = {};
  for (const limit of limits) values[limit.name] = value(limit);
  return values;
}

export type Limits = Record<TierLimit["name"], number>;

export type OwnLimits = { [Name in LimitName]?: number | undefined };

/** Null takes a limit away, what is left out stays. */
export type LimitChanges = { [Name in LimitName]?: number | null | undefined };

export const SHADOW_LIMITS = TIER_LIMITS.map(({ name }) => name);
export type ShadowLimit = TierLimit["name"];

/** `shadow`: counted and reported, never refused. `deprecated`: no new key gets the tier. */
export type TierLimits = Limits & { shadow?: readonly ShadowLimit[]; deprecated?: boolean };

/** Tier name to its default limits; a key's own record may override each of the numbers. */
export type Tiers = Readonly<Record<string, Readonly<TierLimits>>>;

/** The five numbers behind the rate-limit headers, as the store reports them. */
export interface LimitState {
  /** Of the window. */
  limit: number;
  remaining: number;
  /** Redis time, Unix milliseconds, at which the oldest counted request leaves the window; now if none. */
  resetAtMs: number;
  /** Of slots. */
  concurrentLimit: number;
  active: number;
}

export const HEADERS_BYTES_MAX = 16 * 1024;

export const JSON_BODY_BYTES_MAX = 256 * 1024;

/** The API's deepest body has three. */
export const JSON_DEPTH_MAX = 32;

/** The API's largest body has some 400. */
export const JSON_VALUES_MAX = 2000;

export const LIST_ITEMS_MAX = 100;

/** Where the API names no maximum. */
export const TEXT_CHARS_MAX = 10_000;

export const FILE_BYTES_MAX = 10_485_760;

export const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,255}$/;

/** RFC 9110 section 8.4. */
export const isIdentity = (contentEncoding: string | undefined): boolean =>
  contentEncoding === undefined || contentEncoding.toLowerCase() === "identity";
