import type { LimitState } from "../domain/limits.ts";
import type { KeyRef } from "../store/names.ts";

/** So many seconds' worth may come at once. */
const BURST_SECONDS = 2;

/** What this process remembers of one key's requests. */
export interface KeyUse {
  /** Polls, credits, uploads and refused requests that the key may still make now. */
  left: number;
  countedAtMs: number;
  /** Polls, credits and uploads that are being worked on, be their client there or not. */
  underWay: number;
  /** The five numbers of the headers as they last were, for answers that do not ask the store. */
  state: LimitState | undefined;
  /** The least price for which the key's credits did not suffice, until a generation that costs as much is admitted. */
  unaffordable: number | undefined;
  /** Generations and uploads that passed unmetered in the outage of this number. */
  unmetered?: { outage: number; requests: number };
}

/**
 * Limits each key's polls, credits, uploads and refused requests in this process, before the store is asked. It counts
 * toward no limit of a tier. Kept as long as the authenticator keeps the key. Decision 0036.
 */
export function createUtilityRate(nowMs: () => number = () => performance.now()) {
  const uses = new WeakMap<KeyRef, KeyUse>();
  return {
    useOf(key: KeyRef): KeyUse {
      let use = uses.get(key);
      if (!use) {
        use = {
          left: Number.POSITIVE_INFINITY,
          countedAtMs: nowMs(),
          underWay: 0,
          state: undefined,
          unaffordable: undefined,
        };
        uses.set(key, use);
      }
      return use;
    },
    /** Counts one request. @returns false when the key has none left; then nothing is counted */
    take(use: KeyUse, perSecond: number): boolean {
      const atMs = nowMs();
      const earned = ((atMs - use.countedAtMs) / 1000) * perSecond;
      use.left = Math.min(BURST_SECONDS * perSecond, use.left + earned);
      use.countedAtMs = atMs;
      if (use.left < 1) return false;
      use.left--;
      return true;
    },
  };
}

export type UtilityRate = ReturnType<typeof createUtilityRate>;
