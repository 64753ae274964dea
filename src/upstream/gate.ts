import { createRoundRobin } from "../domain/round-robin.ts";
import type { Metrics } from "../telemetry/metrics.ts";

/** Why a request was given up before it was sent: as many as may wait did, it waited too long, or the gateway stops. */
export const GATE_REFUSALS = ["queue_full", "waited_too_long", "closed"] as const;
export type GateRefusal = (typeof GATE_REFUSALS)[number];

/** What the metrics learn of requests that do not get a connection at once. */
export interface GateObserver {
  /** The number of waiting requests changed. */
  waiting(change: 1 | -1): void;
  /** A request got a connection after this time. */
  waited(ms: number): void;
  refused(reason: GateRefusal): void;
}

export interface GateOptions {
  /** Requests in flight at most. */
  inFlightMax: number;
  /** Of these, requests of one owner; all of them by default. */
  inFlightPerOwnerMax?: number;
  /** Requests that may wait. Beyond that, the owner who has most of them waiting is refused one. */
  waitingMax: number;
  /** How long one may wait. */
  waitMaxMs: number;
  observer?: GateObserver | undefined;
}

/** Keeps requests out of the pool until a connection is free for them. Owners who wait take turns. */
export interface Gate {
  /** Takes a connection; false where none is free for this owner. */
  enter(owner: string): boolean;
  /** Waits for a connection and takes it. @returns why it was refused; undefined when it has one */
  wait(owner: string): Promise<GateRefusal | undefined>;
  /** Takes one more, beyond the limit if need be: a request that was given up still occupies its connection. */
  keep(owner: string): void;
  /** Gives one back, to the next owner's request that has waited longest. */
  leave(owner: string): void;
  /** Refuses all that wait, and all that come. */
  close(): void;
}

interface Waiter {
  owner: string;
  sinceMs: number;
  resolve(refusal: GateRefusal | undefined): void;
}

/**
 * A pool's own queue would hold requests without a bound, while the time that each has to be answered runs: above
 * capacity every one would go out too late to be answered. Decision 0032.
 */
export function createGate(options: GateOptions): Gate {
  const { inFlightMax, inFlightPerOwnerMax = inFlightMax, waitingMax, waitMaxMs, observer } = options;
  const waiters = createRoundRobin<Waiter>();
  /** The same ones in the order in which they came, which is also that in which their time ends. */
  const oldestFirst = new Set<Waiter>();
  const inFlightOf = new Map<string, number>();
  let inFlight = 0;
  let closed = false;
  let timer: NodeJS.Timeout | undefined;

  const hasRoom = (owner: string): boolean => (inFlightOf.get(owner) ?? 0) < inFlightPerOwnerMax;

  function take(owner: string): void {
    inFlight++;
    inFlightOf.set(owner, (inFlightOf.get(owner) ?? 0) + 1);
  }

  function returnPlace(owner: string): void {
    inFlight--;
    const left = inFlightOf.get(owner)! - 1;
    if (left > 0) inFlightOf.set(owner, left);
    else inFlightOf.delete(owner);
  }

  function refuse(waiter: Waiter, reason: GateRefusal): void {
    waiters.remove(waiter.owner, waiter);
    oldestFirst.delete(waiter);
    observer?.waiting(-1);
    observer?.refused(reason);
    waiter.resolve(reason);
  }

  /** Refuses those that have waited too long, and wakes up again for the next one. */
  function expire(): void {
    clearTimeout(timer);
    timer = undefined;
    const nowMs = performance.now();
    for (const waiter of oldestFirst) {
      const leftMs = waiter.sinceMs + waitMaxMs - nowMs;
      if (leftMs > 0) {
        timer = setTimeout(expire, leftMs);
        return;
      }
      refuse(waiter, "waited_too_long");
    }
  }

  function callUp(): void {
    while (inFlight < inFlightMax) {
      const waiter = waiters.next(hasRoom);
      if (!waiter) return;
      oldestFirst.delete(waiter);
      take(waiter.owner);
      observer?.waiting(-1);
      observer?.waited(performance.now() - waiter.sinceMs);
      waiter.resolve(undefined);
    }
  }

  /** Makes room for one more that waits. @returns false when nobody has more of them waiting than this owner */
  function displace(owner: string): boolean {
    const largest = waiters.largestOwner();
    if (largest === undefined || waiters.sizeOf(largest) <= waiters.sizeOf(owner) + 1) return false;
    refuse(waiters.newestOf(largest)!, "queue_full");
    return true;
  }

  return {
    enter(owner) {
      if (inFlight >= inFlightMax || closed || !hasRoom(owner)) return false;
      take(owner);
      return true;
    },
    wait(owner) {
      if (closed || (waiters.size >= waitingMax && !displace(owner))) {
        const reason = closed ? "closed" : "queue_full";
        observer?.refused(reason);
        return Promise.resolve(reason);
      }
      observer?.waiting(1);
      return new Promise((resolve) => {
        const waiter = { owner, sinceMs: performance.now(), resolve };
        waiters.add(owner, waiter);
        oldestFirst.add(waiter);
        if (timer === undefined) expire();
      });
    },
    keep: take,
    leave(owner) {
      returnPlace(owner);
      if (waiters.size === 0) return;
      // A process that stalled may come here before its timer does.
      const [oldest] = oldestFirst;
      if (performance.now() - oldest!.sinceMs >= waitMaxMs) expire();
      callUp();
    },
    close() {
      closed = true;
      clearTimeout(timer);
      for (const waiter of oldestFirst) refuse(waiter, "closed");
    },
  };
}

/** Counts in the metrics what happens at the gate of one kind of request. */
export function observeGate(
  metrics: Pick<Metrics, "upstreamWaiting" | "upstreamWaitSeconds" | "upstreamOverloaded">,
  kind: "generate" | "poll",
): GateObserver {
  const { upstreamWaiting, upstreamWaitSeconds, upstreamOverloaded } = metrics;
  // All series are there from the start, so that the first refusal is seen.
  upstreamWaiting.inc({ kind }, 0);
  for (const reason of GATE_REFUSALS) upstreamOverloaded.inc({ kind, reason }, 0);
  return {
    waiting: (change) => upstreamWaiting.inc({ kind }, change),
    waited: (ms) => upstreamWaitSeconds.observe({ kind }, ms / 1000),
    refused: (reason) => upstreamOverloaded.inc({ kind, reason }),
  };
}
