import { dropOldest } from "../domain/bounded.ts";
import { GatewayError } from "../domain/errors.ts";
import { monthOf } from "../domain/moments.ts";
import type { BarredStatus } from "../records/records.ts";
import { isRefusedByStore } from "../redis/script-errors.ts";
import type { UnmeteredElsewhere } from "../settlement/unmetered-elsewhere.ts";
import type { RequestContext } from "./http-exchange.ts";
import { isAllowed } from "./restricted-keys.ts";

// Requests that pass while the store is away, with `store.fallback_strategy: allow`.

const SEEN_TASKS_MAX = 100_000;

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

export const createFallbackMemory = ({ find }: UnmeteredElsewhere): FallbackMemory => ({
  barredAccounts: new Map(),
  seenTasks: createSeenTasks(),
  unmeteredTasks: createSeenTasks(),
  findElsewhere: find,
});

type SeenTasks = ReturnType<typeof createSeenTasks>;

function createSeenTasks() {
  const tasks = new Map<string, { accountId: string; upstream: string | undefined }>();
  const owner = (taskId: string): string | undefined => tasks.get(taskId)?.accountId;
  return {
    /** @param upstream tag of the upstream that made the task; undefined keeps the known tag */
    add(taskId: string, accountId: string, upstream: string | undefined): void {
      const known = tasks.get(taskId);
      if (known?.accountId === accountId && (upstream === undefined || known.upstream === upstream)) return;
      if (!known) dropOldest(tasks, SEEN_TASKS_MAX);
      tasks.set(taskId, { accountId, upstream });
    },
    has: (taskId: string, accountId: string): boolean => owner(taskId) === accountId,
    owner,
    upstream: (taskId: string): string | undefined => tasks.get(taskId)?.upstream,
    forget(taskId: string, accountId: string): void {
      if (owner(taskId) === accountId) tasks.delete(taskId);
    },
  };
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
 * True when the store is away, by a failed probe of its own, and the configuration lets this request pass, then marked as degraded.
 * @param isGenerating `store.allow_max_per_key` counts it, and a suspended account's is refused
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

/** @returns false, nothing counted, at the key's maximum in this outage or at its monthly cap, of which it takes its price */
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

/** Limits in the headers as far as they are known. Nothing of them is in use: while the store is away none applies. */
export function showKnownLimits({ exchange, usage }: RequestContext): void {
  const { limit = 0, concurrentLimit = 0 } = usage.valid?.state ?? {};
  exchange.state = { limit, remaining: limit, resetAtMs: Date.now(), concurrentLimit, active: 0 };
}
