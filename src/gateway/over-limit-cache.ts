import { dropOldest } from "../domain/bounded.ts";
import { retrySeconds } from "../domain/envelope.ts";
import type { LimitState } from "../domain/limits.ts";
import type { LimitOwner } from "../scripts/admit.ts";

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
