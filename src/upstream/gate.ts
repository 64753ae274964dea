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
  /** Requests in flight at most: as many as the pool has connections. */
  inFlightMax: number;
  /** Requests that may wait; more are refused at once. */
  waitingMax: number;
  /** How long one may wait. */
  waitMaxMs: number;
  observer?: GateObserver | undefined;
}

/** Keeps requests out of the pool until a connection is free for them, first come, first served. */
export interface Gate {
  /** Takes a connection; false where none is free. */
  enter(): boolean;
  /** Waits for a connection and takes it. @returns why it was refused; undefined when it has one */
  wait(): Promise<GateRefusal | undefined>;
  /** Takes one more, beyond the limit if need be: a request that was given up still occupies its connection. */
  keep(): void;
  /** Gives one back, to the request that has waited longest. */
  leave(): void;
  /** Refuses all that wait, and all that come. */
  close(): void;
}

interface Waiter {
  sinceMs: number;
  resolve(refusal: GateRefusal | undefined): void;
}

/**
 * A pool's own queue would hold requests without a bound, while the time that each has to be answered runs: above
 * capacity every one would go out too late to be answered. Decision 0032.
 */
export function createGate({ inFlightMax, waitingMax, waitMaxMs, observer }: GateOptions): Gate {
  /** In the order in which they came, which is also that in which their time ends. */
  const waiters: Waiter[] = [];
  let inFlight = 0;
  let closed = false;
  let timer: NodeJS.Timeout | undefined;

  function refuse(waiter: Waiter, reason: GateRefusal): void {
    observer?.waiting(-1);
    observer?.refused(reason);
    waiter.resolve(reason);
  }

  /** Refuses those that have waited too long, and wakes up again for the next one. */
  function expire(): void {
    const nowMs = performance.now();
    while (waiters.length > 0 && nowMs - waiters[0]!.sinceMs >= waitMaxMs) {
      refuse(waiters.shift()!, "waited_too_long");
    }
    clearTimeout(timer);
    timer = undefined;
    if (waiters.length > 0) timer = setTimeout(expire, waiters[0]!.sinceMs + waitMaxMs - nowMs);
  }

  return {
    enter() {
      if (inFlight >= inFlightMax || closed) return false;
      inFlight++;
      return true;
    },
    wait() {
      if (closed || waiters.length >= waitingMax) {
        const reason = closed ? "closed" : "queue_full";
        observer?.refused(reason);
        return Promise.resolve(reason);
      }
      observer?.waiting(1);
      return new Promise((resolve) => {
        waiters.push({ sinceMs: performance.now(), resolve });
        if (timer === undefined) expire();
      });
    },
    keep() {
      inFlight++;
    },
    leave() {
      inFlight--;
      if (waiters.length === 0 || inFlight >= inFlightMax) return;
      // A process that stalled may come here before its timer does.
      if (performance.now() - waiters[0]!.sinceMs >= waitMaxMs) expire();
      const next = waiters.shift();
      if (!next) return;
      inFlight++;
      observer?.waiting(-1);
      observer?.waited(performance.now() - next.sinceMs);
      next.resolve(undefined);
    },
    close() {
      closed = true;
      clearTimeout(timer);
      for (const waiter of waiters.splice(0)) refuse(waiter, "closed");
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
