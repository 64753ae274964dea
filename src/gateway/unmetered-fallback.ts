import { dropOldest } from "../domain/bounded.ts";
import { GatewayError } from "../domain/errors.ts";
import type { KeyRef } from "../store/names.ts";
import type { AccountStatus, BarredStatus } from "../store/records.ts";
import { isRefusedByStore } from "../store/script-errors.ts";
import type { KeyUsage } from "./key-usage.ts";
import type { Call } from "./request-context.ts";

const SEEN_TASKS_MAX = 100_000;
const BARRED_ACCOUNTS_MAX = 100_000;

/** What this process remembers for `store.fallback_strategy: allow`. */
export interface FallbackMemory {
  /** Keys that a script has called valid. A key that is called invalid comes back as another object. */
  goodKeys: WeakSet<KeyRef>;
  /** Accounts that the latest script about one of their keys called suspended or closed. */
  barredAccounts: Map<string, BarredStatus>;
  /** Tasks this process has bound or polled, and their accounts: these may be polled while the store is unavailable. */
  seenTasks: SeenTasks;
  /** Tasks it created while the store was unavailable; the store never knows them. */
  unmeteredTasks: SeenTasks;
}

export interface SeenTasks {
  /** @param upstream tag of the upstream that made the task; undefined keeps the known tag */
  add(taskId: string, accountId: string, upstream: string | undefined): void;
  has(taskId: string, accountId: string): boolean;
  owner(taskId: string): string | undefined;
  upstream(taskId: string): string | undefined;
  forget(taskId: string, accountId: string): void;
}

export const createFallbackMemory = (): FallbackMemory => ({
  goodKeys: new WeakSet(),
  barredAccounts: new Map(),
  seenTasks: createSeenTasks(),
  unmeteredTasks: createSeenTasks(),
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
 * Remembers a key that a script called valid: a key that was only found by its hash may be revoked.
 * @param status of its account, by the same script
 */
export function rememberGoodKey({ gateway, config, key }: Call, status: AccountStatus): void {
  if (config.store.fallbackStrategy !== "allow") return;
  const { goodKeys, barredAccounts } = gateway.fallback;
  goodKeys.add(key);
  if (status === "active") {
    barredAccounts.delete(key.accountId);
  } else {
    if (!barredAccounts.has(key.accountId)) dropOldest(barredAccounts, BARRED_ACCOUNTS_MAX);
    barredAccounts.set(key.accountId, status);
  }
}

export function rememberTask(
  { gateway, config, key }: Call,
  taskId: string,
  upstream: string | undefined,
): void {
  if (config.store.fallbackStrategy === "allow")
    gateway.fallback.seenTasks.add(taskId, key.accountId, upstream);
}

/** True for a task that this process has seen as another account's; for use while the store cannot be asked. */
export function isOthersTask({ gateway, key }: Call, taskId: string): boolean {
  return (gateway.fallback.seenTasks.owner(taskId) ?? key.accountId) !== key.accountId;
}

/**
 * True when the store is unavailable and the configuration lets this request pass, which is then marked as degraded. A failed
 * call does not suffice: Redis must have failed a probe on its own connection.
 * @param isGenerating a generation or an upload: `store.allow_max_per_key` counts it, and a suspended account's is refused
 */
export async function passUnmetered(
  { gateway, config, exchange, key, usage }: Call,
  error: unknown,
  isGenerating = false,
): Promise<boolean> {
  if (!(error instanceof GatewayError) || error.refusal.name !== "store_unavailable") return false;
  // A store that answers and refuses (no memory left) is available: passing requests would lift the limits.
  if (config.store.fallbackStrategy !== "allow" || isRefusedByStore(error.cause)) return false;
  if (!gateway.fallback.goodKeys.has(key)) return false;
  const barred = gateway.fallback.barredAccounts.get(key.accountId);
  if (barred === "closed" || (barred && isGenerating)) return false;
  const outage = await gateway.store.outage(key.partition);
  if (outage === undefined) return false;
  if (isGenerating && !countUnmetered(usage, outage, config.store.allowMaxPerKey)) return false;
  exchange.degraded = true;
  gateway.metrics.degraded.inc({ route: exchange.route });
  return true;
}

/** Counts an unmetered request of a key. @returns false when the key has reached its maximum in this outage */
function countUnmetered(usage: KeyUsage, outage: number, max: number): boolean {
  if (usage.unmetered?.outage !== outage) usage.unmetered = { outage, requests: 0 };
  if (max > 0 && usage.unmetered.requests >= max) return false;
  usage.unmetered.requests++;
  return true;
}
