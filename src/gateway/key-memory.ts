import { dropOldest } from "../domain/bounded.ts";
import { retrySeconds } from "../domain/envelope.ts";
import { GatewayError, type Refusal, refuse } from "../domain/errors.ts";
import type { LimitState } from "../domain/limits.ts";
import { monthOf } from "../domain/months.ts";
import type { KeyRef } from "../records/names.ts";
import type { AccountStatus, BarredStatus } from "../records/records.ts";
import { isRefusedByStore } from "../redis/script-errors.ts";
import type { LimitOwner } from "../scripts/admit.ts";
import type { KeyState } from "../scripts/include/limits.ts";
import type { UnmeteredElsewhere } from "../settlement/unmetered-elsewhere.ts";
import type { RequestContext } from "./http-exchange.ts";
import { isAllowed, type KnownRestrictions } from "./key-restrictions.ts";

/** A burst may be as large as what is allowed in this time. */
const BURST_SECONDS = 2;
/** One key's polls, credits and uploads may be this share of the requests in flight. */
const KEY_SHARE = 1 / 4;

/** One key's requests as this process remembers them. */
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

/**
 * Counts a poll, credits or an upload in flight, until its log line is written. Otherwise the requests of one key could take up
 * all requests in flight when the upstream is slow, though each came within the key's rate.
 * @returns the refusal to answer when the key has its share in flight
 */
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

/**
 * Counts a generation that will probably be refused for lack of credits as a utility request. A generation that costs less
 * than the last refused one is not counted: the key may have the credits for it.
 */
export function limitUnaffordable(context: RequestContext, price: number): Refusal | undefined {
  return isUnaffordable(context.usage, price) ? limitUtilityRequests(context) : undefined;
}

/** Records whether the credits of a key covered a generation at this price. */
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

const KEYS_MAX = 10_000;
/** How long one decision of the store may be repeated. */
const CACHED_MAX_MS = 1000;
/**
 * Refusals in a row, each less than `ROW_GAP_MAX_MS` after the one before, from which on they are repeated from the cache.
 * Before that a limit that was raised, or a key that was revoked, takes effect with the next request.
 */
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
  /** Refusals by the store in a row. */
  inRow: number;
}

/** A refusal from the cache. */
export interface CachedRefusal {
  state: LimitState;
  tier: string;
  limitOf: LimitOwner;
  retryAfterSeconds: number;
}

/**
 * Keys over their rate limit. A key that goes on sending is refused from memory, for at most a second and never longer
 * than its window is full. Decision 0002.
 */
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

const SEEN_TASKS_MAX = 100_000;
const BARRED_ACCOUNTS_MAX = 100_000;

/** Memory for `store.fallback_strategy: allow`. */
export interface FallbackMemory {
  /** Accounts that the latest script about one of their keys called suspended or closed; when it ran, Unix ms by the store. */
  barredAccounts: Map<string, { status: BarredStatus; atMs: number }>;
  /** Tasks this process has bound or polled, and their accounts: these may be polled while the store is unavailable. */
  seenTasks: SeenTasks;
  /** Unmetered tasks that the store may not know yet: they are bound when it is back. */
  unmeteredTasks: SeenTasks;
  /** Finds unmetered tasks of processes that share this one's journal folder. */
  findElsewhere: UnmeteredElsewhere["find"];
}

interface SeenTasks {
  /** @param upstream tag of the upstream that made the task; undefined keeps the known tag */
  add(taskId: string, accountId: string, upstream: string | undefined): void;
  has(taskId: string, accountId: string): boolean;
  owner(taskId: string): string | undefined;
  upstream(taskId: string): string | undefined;
  forget(taskId: string, accountId: string): void;
}

export const createFallbackMemory = ({ find }: UnmeteredElsewhere): FallbackMemory => ({
  barredAccounts: new Map(),
  seenTasks: createSeenTasks(),
  unmeteredTasks: createSeenTasks(),
  findElsewhere: find,
});

function createSeenTasks(): SeenTasks {
  const tasks = new Map<string, { accountId: string; upstream: string | undefined }>();
  const owner = (taskId: string): string | undefined => tasks.get(taskId)?.accountId;
  return {
    add(taskId, accountId, upstream) {
      const known = tasks.get(taskId);
      if (known?.accountId === accountId && (upstream === undefined || known.upstream === upstream)) return;
      if (!known) dropOldest(tasks, SEEN_TASKS_MAX);
      tasks.set(taskId, { accountId, upstream });
    },
    has: (taskId, accountId) => owner(taskId) === accountId,
    owner,
    upstream: (taskId) => tasks.get(taskId)?.upstream,
    forget(taskId, accountId) {
      if (owner(taskId) === accountId) tasks.delete(taskId);
    },
  };
}

/**
 * Remembers a key that a script called valid: a key that was only found by its hash may be revoked. Replies may be handled in
 * another order than their scripts ran in: one that comes late replaces nothing that is newer.
 * @param status of its account, by the same script
 */
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

/** A generation passed unmetered, and this is its task: it can be polled while the store does not know it. */
export function rememberUnmetered({ gateway, key }: RequestContext, taskId: string, upstream: string): void {
  gateway.fallback.unmeteredTasks.add(taskId, key.accountId, upstream);
}

/** True for an unmetered task of this account that this process, or one that shares its journal folder, has made. */
export async function isKnownUnmetered(context: RequestContext, taskId: string): Promise<boolean> {
  const { gateway, config, key } = context;
  const { unmeteredTasks, findElsewhere } = gateway.fallback;
  if (isOthersTask(context, taskId)) return false;
  if (unmeteredTasks.owner(taskId) === undefined && config.store.fallbackStrategy === "allow") {
    const { accountId, upstream } = (await findElsewhere(taskId)) ?? {};
    if (accountId !== undefined) unmeteredTasks.add(taskId, accountId, upstream);
  }
  return unmeteredTasks.has(taskId, key.accountId);
}

/** True for a task that this process has seen as another account's; for use while the store cannot be asked. */
export function isOthersTask({ gateway, key }: RequestContext, taskId: string): boolean {
  return (gateway.fallback.seenTasks.owner(taskId) ?? key.accountId) !== key.accountId;
}

/**
 * True when the store is unavailable and the configuration lets this request pass, which is then marked as degraded. A failed
 * call does not suffice: Redis must have failed a probe on its own connection.
 * @param isGenerating a generation or an upload: `store.allow_max_per_key` counts it, and a suspended account's is refused
 */
export async function passUnmetered(
  context: RequestContext,
  error: unknown,
  isGenerating = false,
): Promise<boolean> {
  const { gateway, config, exchange, key } = context;
  if (!isStoreUnavailable(error)) return false;
  // A store that answers and refuses (no memory left) is available: passing requests would lift the limits.
  if (config.store.fallbackStrategy !== "allow" || isRefusedByStore(error.cause)) return false;
  if (!mayPass(context, isGenerating)) return false;
  const outage = await gateway.store.outage(key.partition);
  // A reply that came meanwhile may have called the key invalid.
  if (outage === undefined || !mayPass(context, isGenerating)) return false;
  if (isGenerating && !countUnmetered(context, outage)) return false;
  exchange.degraded = true;
  gateway.metrics.degraded.inc({ route: exchange.route });
  return true;
}

export const isStoreUnavailable = (error: unknown): error is GatewayError =>
  error instanceof GatewayError && error.refusal.name === "store_unavailable";

/** True if, as far as this process knows, the key is valid for this request and its account is not barred from it. */
function mayPass(context: RequestContext, isGenerating: boolean): boolean {
  const { gateway, key, usage } = context;
  const { valid, isInvalid } = usage;
  if (valid === undefined || isInvalid || !isAllowed(context)) return false;
  if (valid.terms && gateway.store.nowMs(key.partition) >= valid.terms.expiresAtMs) return false;
  const barred = gateway.fallback.barredAccounts.get(key.accountId)?.status;
  return barred === undefined || (barred === "suspended" && !isGenerating);
}

/**
 * Counts an unmetered generation or upload of a key.
 * @returns false, with nothing counted, when the key has reached its maximum in this outage, or the credits that it may spend
 *   in a month: what passes counts there at its price, though it is not charged
 */
function countUnmetered({ gateway, config, exchange, key, usage }: RequestContext, outage: number): boolean {
  if (usage.unmetered?.outage !== outage) usage.unmetered = { outage, requests: 0, credits: 0 };
  const { unmetered, valid } = usage;
  const { price = 0 } = exchange;
  const { allowMaxPerKey: most } = config.store;
  if (most > 0 && unmetered.requests >= most) return false;
  if (valid?.terms) {
    const isSameMonth = monthOf(gateway.store.nowMs(key.partition)) === monthOf(valid.atMs);
    const spent = (isSameMonth ? valid.terms.spent : 0) + unmetered.credits;
    if (spent + price > valid.terms.cap) return false;
  }
  unmetered.requests++;
  unmetered.credits += price;
  return true;
}

/**
 * The limits of the key in the headers of a successful answer, as far as they are known. Nothing of them is in use: while the
 * store is unavailable none applies.
 */
export function showKnownLimits({ exchange, usage }: RequestContext): void {
  const { limit = 0, concurrentLimit = 0 } = usage.valid?.state ?? {};
  exchange.state = { limit, remaining: limit, resetAtMs: Date.now(), concurrentLimit, active: 0 };
}
