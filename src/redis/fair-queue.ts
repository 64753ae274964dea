import { createRoundRobin } from "../domain/round-robin.ts";
import type { Deadline, Deadlines } from "./deadlines.ts";

/** Calls under way, as items of batches: about 20 ms of Redis's time, and 12,000 a second at a round trip of 20 ms. */
const UNDER_WAY_MAX = 256;
const WAITING_MAX = 10_000;
const WAITING_PER_OWNER_MAX = 500;

interface Waiter {
  deadline: Deadline;
  resolve(): void;
  reject(error: Error): void;
}

/**
 * Bounds the calls under way to Redis, so that its replies are never late because of our own queue. Requests above
 * the bound wait, and owners take turns: a key with a thousand requests delays another key's by one. Settlements count, but
 * do not wait. Decision 0036.
 * @param options.deadlines how long a request may wait
 * @param options.refused makes the error of a request that may not wait, or has waited too long
 * @param options.changed is told how many wait
 */
export function createFairQueue(options: {
  deadlines: Deadlines;
  refused(why: string): Error;
  changed(waiting: number): void;
}) {
  const { deadlines, refused, changed } = options;
  const waiters = createRoundRobin<Waiter>();
  let underWay = 0;
  /** Requests that were let go, and whose calls have not begun yet. */
  let released = 0;

  function releaseNext(): void {
    while (waiters.size > 0 && underWay + released < UNDER_WAY_MAX) {
      const waiter = waiters.next()!;
      deadlines.end(waiter.deadline);
      released++;
      waiter.resolve();
    }
    changed(waiters.size);
  }

  return {
    begun(): void {
      underWay++;
    },
    ended(calls: number): void {
      underWay -= calls;
      if (waiters.size > 0) releaseNext();
    },
    /** Whether a request has to wait before it may call. */
    isFull: (): boolean => waiters.size > 0 || underWay + released >= UNDER_WAY_MAX,
    /** Waits for this owner's turn; the call must follow at once. @throws what `refused` makes */
    async wait(owner: string): Promise<void> {
      if (waiters.size >= WAITING_MAX || waiters.sizeOf(owner) >= WAITING_PER_OWNER_MAX)
        throw refused("too many calls of this key wait for the store");
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const deadline = deadlines.begin(() => {
        waiters.remove(owner, waiter);
        changed(waiters.size);
        reject(refused("the call waited too long for the store"));
      });
      const waiter = { deadline, resolve, reject };
      waiters.add(owner, waiter);
      changed(waiters.size);
      await promise;
      released--;
    },
    /** Rejects all waiting requests: the store does not answer. */
    rejectAll(error: () => Error): void {
      for (const { deadline, reject } of waiters.clear()) {
        deadlines.end(deadline);
        reject(error());
      }
      changed(0);
    },
  };
}
