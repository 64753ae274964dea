import { dropOldest } from "../domain/bounded.ts";

const ADDRESSES_MAX = 20_000;
const MINUTE_MS = 60_000;
const SECOND_MS = 1000;

/**
 * Keys that are looked up beyond an address's limit, so that good ones behind it still get in. A second's worth may come at
 * once; then the budget refills steadily, so that a good key behind a burst of guesses finds some of it.
 */
export interface LookUpBudget {
  perSecond: number;
  perAddressAndSecond: number;
}

/** Limits how many unknown keys may be tried from one client address. */
export interface UnknownKeys {
  /**
   * Begins a try of a key that may be unknown. Waits while the tries under way would use up the limit if all of their
   * keys were unknown: so the limit holds for simultaneous tries, and many good keys behind one address are all found.
   * @returns 0 when it has begun, and then `end` must follow; else the milliseconds until the address may try again
   */
  begin(address: string): Promise<number>;
  end(address: string): void;
  /**
   * Beyond the limit: whether the key may be looked up all the same. An address may be that of a load balancer, and one
   * attacker behind it must not keep out customers whose keys this process has not seen yet.
   */
  mayLookUp(address: string): boolean;
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
  /** Addresses with tries under way: as many as there are requests, at most. */
  const trying = new Map<string, { underWay: number; waiting: (() => void)[] }>();

  const thisMinute = (address: string) => {
    const entry = counted.get(address);
    return entry && nowMs() - entry.sinceMs < MINUTE_MS ? entry : undefined;
  };

  const blockedMs = (address: string): number => {
    const entry = thisMinute(address);
    return entry && entry.count >= perMinute() ? entry.sinceMs + MINUTE_MS - nowMs() : 0;
  };

  return {
    async begin(address) {
      for (;;) {
        const waitMs = blockedMs(address);
        if (waitMs > 0) return waitMs;
        const tries = trying.get(address);
        if (!tries) {
          trying.set(address, { underWay: 1, waiting: [] });
          return 0;
        }
        if (tries.underWay + (thisMinute(address)?.count ?? 0) < perMinute()) {
          tries.underWay++;
          return 0;
        }
        await new Promise<void>((resolve) => tries.waiting.push(resolve));
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
      const tries = trying.get(address)!;
      tries.underWay--;
      if (tries.underWay === 0) trying.delete(address);
      // This one has made room for one other. Where all will be refused, or nobody is left to wake them, wake all.
      const woken = tries.underWay === 0 || blockedMs(address) > 0 ? tries.waiting.length : 1;
      for (const wake of tries.waiting.splice(0, woken)) wake();
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
