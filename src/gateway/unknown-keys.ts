import { dropOldest } from "../domain/bounded.ts";

const ADDRESSES_MAX = 20_000;
const MINUTE_MS = 60_000;
const SECOND_MS = 1000;

/**
 * Look-ups beyond an address's limit, so that valid keys behind it still pass. A burst of one second's budget is allowed;
 * then it refills steadily, so that a valid key after a burst of guesses gets a look-up.
 */
export interface LookUpBudget {
  perSecond: number;
  perAddressAndSecond: number;
}

/** Limits how many unknown keys may be tried from one client address. */
interface UnknownKeys {
  /**
   * Begins an attempt with a key that may be unknown. Each attempt in progress counts as if its key were unknown, and an
   * attempt waits while they reach the limit. So simultaneous guesses cannot exceed it, and valid keys are only delayed.
   * @returns 0 when it has begun, and then `end` must follow; else the milliseconds until the address may try again
   */
  begin(address: string): Promise<number>;
  end(address: string): void;
  /**
   * True if a key may be looked up beyond the limit. The address may be a load balancer's, and an attacker behind it must
   * not lock out customers whose keys are not cached yet.
   */
  mayLookUp(address: string): boolean;
  /** How long the address may not try unknown keys; 0 if it may. */
  blockedMs(address: string): number;
  /** The key was unknown. */
  count(address: string): void;
}

export function createUnknownKeys(
  perMinute: () => number,
  nowMs: () => number,
  budget: LookUpBudget,
): UnknownKeys {
  const counted = new Map<string, { count: number; sinceMs: number; lookUps: Bucket }>();
  const total = fullBucket(budget.perSecond, nowMs());
  /** Attempts in progress by address; at most as many as requests in flight. */
  const attempts = new Map<string, { inProgress: number; waiting: (() => void)[] }>();

  const thisMinute = (address: string) => {
    const entry = counted.get(address);
    return entry && nowMs() - entry.sinceMs < MINUTE_MS ? entry : undefined;
  };

  const blockedMs = (address: string): number => {
    const entry = thisMinute(address);
    return entry && entry.count >= perMinute() ? entry.sinceMs + MINUTE_MS - nowMs() : 0;
  };

  return {
    blockedMs,
    async begin(address) {
      for (;;) {
        const waitMs = blockedMs(address);
        if (waitMs > 0) return waitMs;
        const own = attempts.get(address);
        if (!own) {
          attempts.set(address, { inProgress: 1, waiting: [] });
          return 0;
        }
        if (own.inProgress + (thisMinute(address)?.count ?? 0) < perMinute()) {
          own.inProgress++;
          return 0;
        }
        await new Promise<void>((resolve) => own.waiting.push(resolve));
      }
    },
    mayLookUp(address) {
      const entry = thisMinute(address);
      if (!entry) return true;
      refill(entry.lookUps, budget.perAddressAndSecond, nowMs());
      refill(total, budget.perSecond, nowMs());
      if (entry.lookUps.left < 1 || total.left < 1) return false;
      entry.lookUps.left--;
      total.left--;
      return true;
    },
    end(address) {
      const own = attempts.get(address)!;
      own.inProgress--;
      if (own.inProgress === 0) attempts.delete(address);
      // One attempt may take its place. If all will be refused, or no other attempt will wake them, all are woken.
      const woken = own.inProgress === 0 || blockedMs(address) > 0 ? own.waiting.length : 1;
      for (const wake of own.waiting.splice(0, woken)) wake();
    },
    count(address) {
      const entry = thisMinute(address);
      if (entry) {
        entry.count++;
        return;
      }
      counted.delete(address);
      dropOldest(counted, ADDRESSES_MAX);
      const lookUps = fullBucket(budget.perAddressAndSecond, nowMs());
      counted.set(address, { count: 1, sinceMs: nowMs(), lookUps });
    },
  };
}

/** Look-ups that may be made now. */
interface Bucket {
  left: number;
  countedAtMs: number;
}

const fullBucket = (perSecond: number, atMs: number): Bucket => ({ left: perSecond, countedAtMs: atMs });

function refill(bucket: Bucket, perSecond: number, atMs: number): void {
  const earned = ((atMs - bucket.countedAtMs) / SECOND_MS) * perSecond;
  bucket.left = Math.min(perSecond, bucket.left + earned);
  bucket.countedAtMs = atMs;
}
