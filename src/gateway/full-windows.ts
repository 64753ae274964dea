import { dropOldest } from "../domain/bounded.ts";
import { retrySeconds } from "../domain/envelope.ts";
import type { LimitState } from "../domain/limits.ts";

const KEYS_MAX = 10_000;
/** How long one decision of the store may be repeated. */
const REMEMBERED_MAX_MS = 1000;
/** A key hammers after so many refusals with less than `PATIENCE_MS` between them: until then a limit that was raised,
 * or a key that was revoked, shows with the next request. */
const HAMMERING = 5;
const PATIENCE_MS = 2000;

interface Refused {
  state: LimitState;
  tier: string;
  askedAtMs: number;
  waitMs: number;
  /** Refusals by the store in a row. */
  times: number;
}

/**
 * Keys whose window the store has just found full: one that hammers on is refused from memory, for a second at the
 * most and never longer than its window stays full. Decision 0022.
 */
export function createRefusedKeys(nowMs: () => number = () => performance.now()) {
  const keys = new Map<string, Refused>();
  return {
    /**
     * @param askedAtMs when the store was asked: it answered later, so what is remembered ends too early, never late
     * @param waitMs until one more fits
     */
    remember(keyId: string, state: LimitState, tier: string, askedAtMs: number, waitMs: number): void {
      const before = keys.get(keyId);
      const times = before && askedAtMs - before.askedAtMs < PATIENCE_MS ? before.times + 1 : 1;
      keys.delete(keyId);
      dropOldest(keys, KEYS_MAX);
      keys.set(keyId, { state, tier, askedAtMs, waitMs, times });
    },
    /** The refusal that still holds; undefined: ask the store. */
    recall(keyId: string): { state: LimitState; tier: string; retryAfterSeconds: number } | undefined {
      const refused = keys.get(keyId);
      if (!refused || refused.times < HAMMERING) return undefined;
      const { state, tier, askedAtMs, waitMs } = refused;
      const elapsedMs = nowMs() - askedAtMs;
      if (elapsedMs >= Math.min(waitMs, REMEMBERED_MAX_MS)) return undefined;
      return { state, tier, retryAfterSeconds: retrySeconds(waitMs - elapsedMs) };
    },
    now: nowMs,
  };
}

export type RefusedKeys = ReturnType<typeof createRefusedKeys>;
