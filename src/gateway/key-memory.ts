import { dropOldest } from "../domain/bounded.ts";
import { retrySeconds } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import type { Allowance } from "../domain/key-restrictions.ts";
import type { LimitState } from "../domain/limits.ts";
import type { KeyRef } from "../records/names.ts";
import type { AccountStatus } from "../records/records.ts";
import type { Generation, KeyState, LimitOwner } from "../scripts/holds.ts";
import type { RequestContext } from "./http-exchange.ts";

/** A burst may be as large as what is allowed in this time. */
const BURST_SECONDS = 2;
/** One key's polls, credits and uploads may be this share of the requests in flight. */
const KEY_SHARE = 1 / 4;

/** As a script has last said. ADMIT runs only with what the request was judged by. */
interface KnownRestrictions extends Allowance {
  readonly text: string;
}

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
  /** The reply of the latest script that found the key valid; with `store.fallback_strategy: allow`. */
  valid?: KeyState;
  /** A script has called the key invalid, which is final: a key that is valid again is looked up anew. */
  isInvalid?: true;
  /** Which endpoints and addresses it may be used with; undefined for a key that has no such restrictions. */
  restrictions?: KnownRestrictions | undefined;
  /** Generations and uploads that passed unmetered in the outage with this number, and the credits they would have cost. */
  unmetered?: { outage: number; requests: number; credits: number };
}

/** Usage per key in this process, while its key is cached. `take` limits utility requests before the store is called. Decision 0020. */
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

/** Keeps the latest numbers of a key. In place: an object for each request that lives until the next would cost the garbage collector. */
export function keepState(usage: KeyUsage, state: LimitState): void {
  usage.state ??= { ...state };
  const { state: kept } = usage;
  kept.limit = state.limit;
  kept.remaining = state.remaining;
  kept.resetAtMs = state.resetAtMs;
  kept.concurrentLimit = state.concurrentLimit;
  kept.active = state.active;
}

export type KeyUsages = ReturnType<typeof createKeyUsages>;

/** Counts a utility request. @returns the refusal to answer when the key's rate is exceeded */
export function limitUtilityRequests(context: RequestContext): Refusal | undefined {
  const { gateway, config, usage } = context;
  const { utilityRequestsPerSecond: limit } = config.server;
  if (gateway.keyUsages.take(usage, limit)) return undefined;
  return slowDown(context, { limit });
}

/** Counts a poll, credits or upload until its log line, so that a slow upstream does not give one key all places in flight. */
export function limitRequestsInFlight(context: RequestContext): Refusal | undefined {
  const { config, exchange, usage } = context;
  const limit = Math.ceil(config.server.maxRequestsInFlight * KEY_SHARE);
  if (usage.inFlight >= limit) {
    const text = "Too many requests at a time with this API key; wait for their answers";
    return slowDown(context, { text, limit, used: usage.inFlight });
  }
  usage.inFlight++;
  exchange.countedIn = usage;
  return undefined;
}

/** A generation that probably lacks credits counts as a utility request; not one that costs less than the last refused one. */
function limitUnaffordable(context: RequestContext, price: number): Refusal | undefined {
  return isUnaffordable(context.usage, price) ? limitUtilityRequests(context) : undefined;
}

export function recordAffordable(
  { gateway, config, usage }: RequestContext,
  price: number,
  isCovered: boolean,
): void {
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
  { exchange, usage }: RequestContext,
  why: Pick<Refusal, "limit" | "used"> & { text?: string },
): Refusal {
  const { state } = usage;
  if (state) exchange.state = { ...state, resetAtMs: Math.max(state.resetAtMs, Date.now()) };
  return refuse("slow_down", { retryAfterSeconds: 1, ...why });
}

const BARRED_ACCOUNTS_MAX = 100_000;
const KEYS_MAX = 10_000;
/** How long one decision of the store may be repeated. */
const CACHED_MAX_MS = 1000;
/** From so many refusals in a row they are repeated from memory; before that a raised limit or a revocation shows at once. */
const ROW_MIN = 5;
const ROW_GAP_MAX_MS = 2000;

interface OverLimit {
  state: LimitState;
  tier: string;
  limitOf: LimitOwner;
  /** When the store was called: it decided later, so the cached refusal ends early, never late. */
  calledAtMs: number;
  /** Until the window has room for one more request. */
  waitMs: number;
  inRow: number;
}

interface CachedRefusal {
  state: LimitState;
  tier: string;
  limitOf: LimitOwner;
  retryAfterSeconds: number;
}

/** Keys over their rate limit, refused from memory for at most a second and never longer than the window is full. Decision 0002. */
export function createOverLimitCache(nowMs: () => number = () => performance.now()) {
  const keys = new Map<string, OverLimit>();
  return {
    put(keyId: string, refused: Omit<OverLimit, "inRow">): void {
      const { calledAtMs } = refused;
      const before = keys.get(keyId);
      const inRow = before && calledAtMs - before.calledAtMs < ROW_GAP_MAX_MS ? before.inRow + 1 : 1;
      keys.delete(keyId);
      dropOldest(keys, KEYS_MAX);
      keys.set(keyId, { ...refused, inRow });
    },
    /** The refusal that still holds; undefined: call the store. */
    get(keyId: string): CachedRefusal | undefined {
      const cached = keys.get(keyId);
      if (!cached || cached.inRow < ROW_MIN) return undefined;
      const { state, tier, limitOf, calledAtMs, waitMs } = cached;
      const elapsedMs = nowMs() - calledAtMs;
      if (elapsedMs >= Math.min(waitMs, CACHED_MAX_MS)) return undefined;
      return { state, tier, limitOf, retryAfterSeconds: retrySeconds(waitMs - elapsedMs) };
    },
    now: nowMs,
  };
}

export type OverLimitCache = ReturnType<typeof createOverLimitCache>;

/** Refuses what ADMIT would refuse, without calling the store: a key over its rate limit, or one without enough credits. */
export function refuseFromMemory(
  context: RequestContext,
  { idempotency, price }: Generation,
): Refusal | undefined {
  const { gateway, config, exchange, key } = context;
  // A repeat of a request that was admitted is replayed, whatever the window holds.
  const cached = idempotency ? undefined : gateway.overLimit.get(key.keyId);
  if (!cached) return limitUnaffordable(context, price);
  exchange.state = cached.state;
  gateway.store.countAdmission(cached.tier, "rate_limited", config.tiers);
  return rateLimited(cached);
}

export function rateLimited({ state, limitOf, retryAfterSeconds }: Omit<CachedRefusal, "tier">): Refusal {
  const { limit, remaining } = state;
  return refuse("rate_limited", { retryAfterSeconds, limit, used: limit - remaining, limitOf });
}

/** A key that was only found by its hash may be revoked, so scripts must have called it valid. Late replies replace nothing newer. */
export function rememberGoodKey(
  { gateway, config, key, usage }: RequestContext,
  { state, tier, terms, restrictions, atMs }: KeyState,
  status: AccountStatus,
): void {
  if (config.store.fallbackStrategy !== "allow") return;
  if (usage.valid === undefined || usage.valid.atMs <= atMs)
    usage.valid = { state, tier, terms, restrictions, atMs };
  const { barredAccounts } = gateway.fallback;
  const barred = barredAccounts.get(key.accountId);
  if (barred && barred.atMs >= atMs) return;
  if (status === "active") {
    if (barred) barredAccounts.delete(key.accountId);
  } else {
    if (!barred) dropOldest(barredAccounts, BARRED_ACCOUNTS_MAX);
    barredAccounts.set(key.accountId, { status, atMs });
  }
}

export function rememberTask(
  { gateway, config, key }: RequestContext,
  taskId: string,
  upstream: string | undefined,
): void {
  if (config.store.fallbackStrategy === "allow")
    gateway.fallback.seenTasks.add(taskId, key.accountId, upstream);
}
