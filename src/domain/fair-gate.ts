/** Why one was refused a place: the queue is full, it waited too long, or the gate was closed. */
export const GATE_REFUSALS = ["queue_full", "waited_too_long", "closed"] as const;
export type GateRefusal = (typeof GATE_REFUSALS)[number];

/** Receives what happens to those that do not get a place at once. */
export interface GateObserver {
  waiting(change: 1 | -1): void;
  /** One got a place after this time. */
  waited?(ms: number): void;
  refused?(reason: GateRefusal): void;
}

interface WaitLimit {
  begin(expire: () => void): unknown;
  end(ticket: unknown): void;
}

export interface GateOptions {
  inFlightMax: number;
  /** Places of one owner, for each place that is free; without a bound by default. */
  inFlightPerFreeMax?: number | undefined;
  waitingMax: number;
  /** Beyond either bound the next is refused. Without this the newest of the owner with the most makes room for an owner with fewer. */
  waitingPerOwnerMax?: number | undefined;
  /** How long one may wait; without a limit by default. */
  waitMaxMs?: number | undefined;
  /** Limits it instead where time in which the process stalls must not count. */
  waitLimit?: WaitLimit | undefined;
  observer?: GateObserver | undefined;
}

/** Owners without a place that are kept, so that those who come and go do not change the map. Decision 0072. */
const ABSENT_MAX = 1024;

interface Waiter {
  owner: string;
  sinceMs: number;
  ticket: unknown;
  resolve(refusal: GateRefusal | undefined): void;
}

/** Bounds how many are in flight and how many wait. Waiting owners take turns. Decisions 0025 and 0020. */
export class FairGate {
  readonly #options: GateOptions;
  /** Waiting, by owner. The owner at the front is next; an owner of whom none waits is not in it. */
  readonly #lines = new Map<string, Set<Waiter>>();
  /** All waiters in the order of their arrival, which is also the order in which they time out. */
  readonly #oldestFirst = new Set<Waiter>();
  /** Where owners have a bound. */
  #inFlightOf = new Map<string, number>();
  #inFlight = 0;
  #closed = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: GateOptions) {
    this.#options = options;
  }

  /** True if the next one has to wait, whoever owns it. */
  isFull(): boolean {
    return this.#oldestFirst.size > 0 || this.#inFlight >= this.#options.inFlightMax;
  }

  enter(owner: string): boolean {
    if (this.#closed || !this.#hasRoom(owner)) return false;
    this.occupy(owner);
    return true;
  }

  /** Waits for a place and takes it. @returns why it was refused; undefined if it has one */
  wait(owner: string): Promise<GateRefusal | undefined> {
    const { observer, waitLimit, waitMaxMs } = this.#options;
    if (this.#closed || !this.#mayWait(owner)) {
      const reason = this.#closed ? "closed" : "queue_full";
      observer?.refused?.(reason);
      return Promise.resolve(reason);
    }
    observer?.waiting(1);
    return new Promise((resolve) => {
      const waiter: Waiter = { owner, sinceMs: performance.now(), ticket: undefined, resolve };
      waiter.ticket = waitLimit?.begin(() => this.#refuse(waiter, "waited_too_long"));
      const line = this.#lines.get(owner);
      if (line) line.add(waiter);
      else this.#lines.set(owner, new Set([waiter]));
      this.#oldestFirst.add(waiter);
      if (waitMaxMs !== undefined && this.#timer === undefined) this.#expire();
    });
  }

  /** Does the work in a place. @param refused makes the error of one that gets none */
  async run<T>(owner: string, work: () => Promise<T>, refused: (why: GateRefusal) => Error): Promise<T> {
    const refusal = this.enter(owner) ? undefined : await this.wait(owner);
    if (refusal) throw refused(refusal);
    try {
      return await work();
    } finally {
      this.leave(owner);
    }
  }

  /** Takes one more place, above the limit if need be: an aborted request still occupies one. */
  occupy(owner: string): void {
    this.#inFlight++;
    if (this.#options.inFlightPerFreeMax === undefined) return;
    const own = this.#inFlightOf.get(owner);
    if (own === undefined && this.#inFlightOf.size >= this.#options.inFlightMax + ABSENT_MAX)
      this.#inFlightOf = new Map([...this.#inFlightOf].filter(([, places]) => places > 0));
    this.#inFlightOf.set(owner, (own ?? 0) + 1);
  }

  /** Returns places. The next owner's oldest gets one. */
  leave(owner: string, places = 1): void {
    this.vacate(owner, places);
    if (this.#oldestFirst.size === 0) return;
    const [oldest] = this.#oldestFirst;
    // After a stall of the process, this may run before the timer does.
    const { waitMaxMs = Number.POSITIVE_INFINITY } = this.#options;
    if (performance.now() - oldest!.sinceMs >= waitMaxMs) this.#expire();
    this.#admitWaiting();
  }

  /** Returns places that are taken again at once: nobody else gets them. */
  vacate(owner: string, places = 1): void {
    this.#inFlight -= places;
    if (this.#options.inFlightPerFreeMax === undefined) return;
    this.#inFlightOf.set(owner, this.#inFlightOf.get(owner)! - places);
  }

  refuseWaiting(): void {
    for (const waiter of this.#oldestFirst) this.#refuse(waiter, "closed");
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.refuseWaiting();
  }

  /** A place is free, and one that other owners may need is left. */
  #hasRoom(owner: string): boolean {
    const { inFlightMax, inFlightPerFreeMax } = this.#options;
    const free = inFlightMax - this.#inFlight;
    if (inFlightPerFreeMax === undefined) return free > 0;
    return free > 0 && (this.#inFlightOf.get(owner) ?? 0) < inFlightPerFreeMax * free;
  }

  #admitWaiting(): void {
    const { inFlightMax, observer } = this.#options;
    while (this.#inFlight < inFlightMax) {
      const waiter = this.#next();
      if (!waiter) return;
      this.occupy(waiter.owner);
      observer?.waited?.(performance.now() - waiter.sinceMs);
      waiter.resolve(undefined);
    }
  }

  /** Takes out the oldest of the next owner that has room; the owner goes behind the others with the rest. */
  #next(): Waiter | undefined {
    for (const [owner, line] of this.#lines) {
      if (!this.#hasRoom(owner)) continue;
      const [waiter] = line;
      this.#remove(waiter!);
      if (this.#lines.delete(owner)) this.#lines.set(owner, line);
      return waiter;
    }
    return undefined;
  }

  /** Makes room in the queue if need be. */
  #mayWait(owner: string): boolean {
    const { waitingMax, waitingPerOwnerMax } = this.#options;
    const isFull = this.#oldestFirst.size >= waitingMax;
    if (waitingPerOwnerMax !== undefined)
      return !isFull && (this.#lines.get(owner)?.size ?? 0) < waitingPerOwnerMax;
    return !isFull || this.#displace(owner);
  }

  /** Refuses the newest of the owner with the most. @returns false if no other owner would still have as many as this one */
  #displace(owner: string): boolean {
    let [largest, most] = [owner, (this.#lines.get(owner)?.size ?? 0) + 1];
    for (const [each, line] of this.#lines) if (line.size > most) [largest, most] = [each, line.size];
    if (largest === owner) return false;
    this.#refuse([...this.#lines.get(largest)!].at(-1)!, "queue_full");
    return true;
  }

  /** Refuses those that have waited too long, and sets the timer for the next one. */
  readonly #expire = (): void => {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const nowMs = performance.now();
    for (const waiter of this.#oldestFirst) {
      const leftMs = waiter.sinceMs + this.#options.waitMaxMs! - nowMs;
      if (leftMs > 0) {
        this.#timer = setTimeout(this.#expire, leftMs);
        return;
      }
      this.#refuse(waiter, "waited_too_long");
    }
  };

  #refuse(waiter: Waiter, reason: GateRefusal): void {
    this.#remove(waiter);
    this.#options.observer?.refused?.(reason);
    waiter.resolve(reason);
  }

  #remove(waiter: Waiter): void {
    const { waitLimit, observer } = this.#options;
    const line = this.#lines.get(waiter.owner)!;
    line.delete(waiter);
    if (line.size === 0) this.#lines.delete(waiter.owner);
    this.#oldestFirst.delete(waiter);
    waitLimit?.end(waiter.ticket);
    observer?.waiting(-1);
  }
}
