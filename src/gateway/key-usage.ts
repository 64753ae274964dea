import { type Refusal, refuse } from "../domain/errors.ts";
import type { LimitState } from "../domain/limits.ts";
import type { KeyRef } from "../records/names.ts";
import type { KeyState } from "../scripts/include/limits.ts";
import type { Call } from "./request-context.ts";

/** A burst may be as large as what is allowed in this time. */
const BURST_SECONDS = 2;
/** One key's polls, credits and uploads may be this share of the requests in flight. */
const KEY_SHARE = 1 / 4;

/** What this process remembers of one key's requests. */
export interface KeyUsage {
  /** Tokens left of the rate of utility requests: polls, credits, uploads and refused requests. */
  left: number;
  countedAtMs: number;
  /** Polls, credits and uploads in flight, whether their clients are still connected or not. */
  inFlight: number;
  /** The latest rate-limit headers, for answers without a call to the store. */
  state: LimitState | undefined;
  /** The lowest price that the key's credits did not cover, until a generation at that price is admitted. */
  unaffordable: number | undefined;
  /** What the latest script that called the key valid has said of it; with `store.fallback_strategy: allow`. */
  valid?: KeyState;
  /** A script has called the key invalid, which is final: a key that is valid again is looked up anew. */
  isInvalid?: true;
  /** What passed unmetered in the outage with this number: generations and uploads, and what they would have cost. */
  unmetered?: { outage: number; requests: number; credits: number };
}

/**
 * The usage of each key in this process. It lives as long as the authenticator caches the key. `take` limits the key's utility
 * requests before the store is called (`server.utility_requests_per_second`); they count toward no limit of a tier.
 * Decision 0036.
 */
export function createKeyUsages(nowMs: () => number = () => performance.now()) {
  const usages = new WeakMap<KeyRef, KeyUsage>();
  return {
    of(key: KeyRef): KeyUsage {
      let usage = usages.get(key);
      if (!usage) {
        usage = {
          left: Number.POSITIVE_INFINITY,
          countedAtMs: nowMs(),
          inFlight: 0,
          state: undefined,
          unaffordable: undefined,
        };
        usages.set(key, usage);
      }
      return usage;
    },
    /** Counts one request. @returns false when the rate is exceeded; then nothing is counted */
    take(usage: KeyUsage, perSecond: number): boolean {
      const atMs = nowMs();
      const earned = ((atMs - usage.countedAtMs) / 1000) * perSecond;
      usage.left = Math.min(BURST_SECONDS * perSecond, usage.left + earned);
      usage.countedAtMs = atMs;
      if (usage.left < 1) return false;
      usage.left--;
      return true;
    },
  };
}

export type KeyUsages = ReturnType<typeof createKeyUsages>;

/** Counts a utility request. @returns the refusal to answer when the key's rate is exceeded */
export function limitUtilityRequests(call: Call): Refusal | undefined {
  const { gateway, config, usage } = call;
  const { utilityRequestsPerSecond: limit } = config.server;
  if (gateway.keyUsages.take(usage, limit)) return undefined;
  return slowDown(call, { limit });
}

/**
 * Counts a poll, credits or an upload in flight, until its log line is written. Otherwise the requests of one key could take up
 * all requests in flight when the upstream is slow, though each came within the key's rate.
 * @returns the refusal to answer when the key has its share in flight
 */
export function limitRequestsInFlight(call: Call): Refusal | undefined {
  const { config, exchange, usage } = call;
  const limit = Math.ceil(config.server.maxRequestsInFlight * KEY_SHARE);
  if (usage.inFlight >= limit) {
    const text = "Too many requests at a time with this API key; wait for their answers";
    return slowDown(call, { text, limit, used: usage.inFlight });
  }
  usage.inFlight++;
  exchange.countedIn = usage;
  return undefined;
}

/**
 * Counts a generation that will probably be refused for lack of credits as a utility request. A generation that costs less
 * than the last refused one is not counted: the key may have the credits for it.
 */
export function limitUnaffordable(call: Call, price: number): Refusal | undefined {
  return isUnaffordable(call.usage, price) ? limitUtilityRequests(call) : undefined;
}

/** Records whether the credits of a key covered a generation at this price. */
export function recordAffordable({ gateway, config, usage }: Call, price: number, isCovered: boolean): void {
  const wasCounted = isUnaffordable(usage, price);
  if (isCovered) {
    if (wasCounted) usage.unaffordable = undefined;
    return;
  }
  if (wasCounted) return;
  gateway.keyUsages.take(usage, config.server.utilityRequestsPerSecond);
  usage.unaffordable = price;
}

const isUnaffordable = ({ unaffordable }: KeyUsage, price: number): boolean =>
  unaffordable !== undefined && price >= unaffordable;

function slowDown(
  { exchange, usage }: Call,
  why: Pick<Refusal, "limit" | "used"> & { text?: string },
): Refusal {
  const { state } = usage;
  if (state) exchange.state = { ...state, resetAtMs: Math.max(state.resetAtMs, Date.now()) };
  return refuse("slow_down", { retryAfterSeconds: 1, ...why });
}
