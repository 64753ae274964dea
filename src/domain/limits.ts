/**
 * What a key may do: requests per rolling 60 s, tasks at a time, requests per UTC day. To add a limit, follow "A limit of a key"
 * in CONTRIBUTING.md, which lists every place; those of a process (connections, requests in flight) are in
 * config/sections/listeners.ts.
 */
export interface Limits {
  rateLimit: number;
  maxConcurrent: number;
  dailyLimit: number;
}

/** The largest limit that a key or an account may have. Replies carry limits as integers, which are exact far beyond it. */
export const LIMIT_MAX = 1_000_000_000;

/** A key's own limits; those of its tier count where one is missing. */
export type OwnLimits = { [Name in keyof Limits]?: Limits[Name] | undefined };

/** Limits that can be watched before they refuse, by their names in the config. Money never is: a hold is a hold. */
export const SHADOW_LIMITS = ["rate_limit", "max_concurrent", "daily_limit"] as const;
export type ShadowLimit = (typeof SHADOW_LIMITS)[number];

/**
 * `shadow`: these count and are reported, for all keys of the tier, but refuse nothing. `deprecated`: no new key gets the tier.
 */
export type TierLimits = Limits & { shadow?: readonly ShadowLimit[]; deprecated?: boolean };

/** Tier name to its default limits; a key's own record may override each of the numbers. */
export type Tiers = Readonly<Record<string, Readonly<TierLimits>>>;

/** The five numbers behind the rate-limit headers, as the store reports them. */
export interface LimitState {
  rateLimit: number;
  remaining: number;
  /** Redis time, Unix milliseconds, at which the oldest counted request leaves the window; now if none. */
  resetAtMs: number;
  maxConcurrent: number;
  active: number;
}

/** What an unauthenticated answer carries: zeros, and Reset now. */
export function noLimits(nowMs: number): LimitState {
  return { rateLimit: 0, remaining: 0, resetAtMs: nowMs, maxConcurrent: 0, active: 0 };
}
