import { createRoundRobin } from "../domain/round-robin.ts";
import type { Metrics } from "../telemetry/metrics.ts";

/** Why a request was refused before it was sent: the queue is full, it waited too long, or the gateway stops. */
export const GATE_REFUSALS = ["queue_full", "waited_too_long", "closed"] as const;
export type GateRefusal = (typeof GATE_REFUSALS)[number];

/** Receives what happens to requests that do not get a connection at once. */
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
  /** Requests of one owner in flight, for each connection that is free; without a bound by default. */
  inFlightPerFreeMax?: number | undefined;
  /** Requests that may wait. Beyond that, the newest request of the owner with most of them waiting is refused. */
  waitingMax: number;
  /** How long one may wait. */
  waitMaxMs: number;
  observer?: GateObserver | undefined;
}

interface Waiter {
  owner: string;
  sinceMs: number;
  resolve(refusal: GateRefusal | undefined): void;
}

/**
 * Keeps requests out of a connection pool until a connection is free for them. Owners that wait take turns. The pool's own
 * queue has no bound, and the time that each request has for its answer runs in it: above capacity every request would be
 * sent too late to be answered. Decision 0032.
 */
export class Gate {
  readonly #inFlightMax: number;
  readonly #inFlightPerFreeMax: number;
  readonly #waitingMax: number;
  readonly #waitMaxMs: number;
  readonly #observer: GateObserver | undefined;
  readonly #waiters = createRoundRobin<Waiter>();
  /** The same waiters in the order of their arrival, which is also the order in which they time out. */
  readonly #oldestFirst = new Set<Waiter>();
  readonly #inFlightOf = new Map<string, number>();
  #inFlight = 0;
  #closed = false;
  #timer: NodeJS.Timeout | undefined;

  constructor({ inFlightMax, inFlightPerFreeMax, waitingMax, waitMaxMs, observer }: GateOptions) {
    this.#inFlightMax = inFlightMax;
    this.#inFlightPerFreeMax = inFlightPerFreeMax ?? Number.POSITIVE_INFINITY;
    this.#waitingMax = waitingMax;
    this.#waitMaxMs = waitMaxMs;
    this.#observer = observer;
  }

  /** Takes a connection; false if none is free for this owner. */
  enter(owner: string): boolean {
    if (this.#closed || !this.#hasRoom(owner)) return false;
    this.occupy(owner);
    return true;
  }

  /** Waits for a connection and takes it. @returns why it was refused; undefined if it has one */
  wait(owner: string): Promise<GateRefusal | undefined> {
    if (this.#closed || (this.#waiters.size >= this.#waitingMax && !this.#displace(owner))) {
      const reason = this.#closed ? "closed" : "queue_full";
      this.#observer?.refused(reason);
      return Promise.resolve(reason);
    }
    this.#observer?.waiting(1);
    return new Promise((resolve) => {
      const waiter = { owner, sinceMs: performance.now(), resolve };
      this.#waiters.add(owner, waiter);
      this.#oldestFirst.add(waiter);
      if (this.#timer === undefined) this.#expire();
    });
  }

  /** Takes one more connection, above the limit if need be: an aborted request still occupies one. */
  occupy(owner: string): void {
    this.#inFlight++;
    this.#inFlightOf.set(owner, (this.#inFlightOf.get(owner) ?? 0) + 1);
  }

  /** Returns a connection. The next owner's oldest request gets it. */
  leave(owner: string): void {
    this.#inFlight--;
    const left = this.#inFlightOf.get(owner)! - 1;
    if (left > 0) this.#inFlightOf.set(owner, left);
    else this.#inFlightOf.delete(owner);
    if (this.#waiters.size === 0) return;
    // After a stall of the process, this may run before the timer does.
    const [oldest] = this.#oldestFirst;
    if (performance.now() - oldest!.sinceMs >= this.#waitMaxMs) this.#expire();
    this.#admitWaiting();
  }

  /** Refuses all waiting and all later requests. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    for (const waiter of this.#oldestFirst) this.#refuse(waiter, "closed");
  }

  /** A connection is free, and one that other owners may need is left. */
  readonly #hasRoom = (owner: string): boolean => {
    const free = this.#inFlightMax - this.#inFlight;
    return free > 0 && (this.#inFlightOf.get(owner) ?? 0) < this.#inFlightPerFreeMax * free;
  };

  #admitWaiting(): void {
    while (this.#inFlight < this.#inFlightMax) {
      const waiter = this.#waiters.next(this.#hasRoom);
      if (!waiter) return;
      this.#oldestFirst.delete(waiter);
      this.occupy(waiter.owner);
      this.#observer?.waiting(-1);
      this.#observer?.waited(performance.now() - waiter.sinceMs);
      waiter.resolve(undefined);
    }
  }

  /** Makes room in the queue. @returns false if no other owner has more requests waiting than this one */
  #displace(owner: string): boolean {
    const displaced = this.#waiters.makeRoom(owner);
    if (displaced) this.#refuse(displaced, "queue_full");
    return displaced !== undefined;
  }

  /** Refuses requests that have waited too long, and sets the timer for the next one. */
  readonly #expire = (): void => {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const nowMs = performance.now();
    for (const waiter of this.#oldestFirst) {
      const leftMs = waiter.sinceMs + this.#waitMaxMs - nowMs;
      if (leftMs > 0) {
        this.#timer = setTimeout(this.#expire, leftMs);
        return;
      }
      this.#refuse(waiter, "waited_too_long");
    }
  };

  #refuse(waiter: Waiter, reason: GateRefusal): void {
    this.#waiters.remove(waiter.owner, waiter);
    this.#oldestFirst.delete(waiter);
    this.#observer?.waiting(-1);
    this.#observer?.refused(reason);
    waiter.resolve(reason);
  }
}

/** The outcome of a request that the gate refused. @param limit the connections that it waited for, in words */
export function overloaded(refusal: GateRefusal, limit: string): { outcome: "overloaded"; detail: string } {
  switch (refusal) {
    case "queue_full":
      return { outcome: "overloaded", detail: `all of the ${limit} are in use, and as many requests wait` };
    case "waited_too_long":
      return { outcome: "overloaded", detail: `none of the ${limit} was free in time` };
    case "closed":
      return { outcome: "overloaded", detail: "the gateway stops" };
  }
}

/** Counts in the metrics what happens at the gate for one kind of request. */
export function observeGate(
  metrics: Pick<Metrics, "upstreamWaiting" | "upstreamWaitSeconds" | "upstreamOverloaded">,
  kind: "generate" | "poll",
): GateObserver {
  const { upstreamWaiting, upstreamWaitSeconds, upstreamOverloaded } = metrics;
  // All series exist from the start, so that the first refusal is seen.
  upstreamWaiting.inc({ kind }, 0);
  for (const reason of GATE_REFUSALS) upstreamOverloaded.inc({ kind, reason }, 0);
  return {
    waiting: (change) => upstreamWaiting.inc({ kind }, change),
    waited: (ms) => upstreamWaitSeconds.observe({ kind }, ms / 1000),
    refused: (reason) => upstreamOverloaded.inc({ kind, reason }),
  };
}
