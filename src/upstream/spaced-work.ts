/**
 * Runs long pieces of work of the main thread one at a time, in their order. After each one the event loop goes on with
 * everything else for as long as that piece took, so that such work never takes more than half of the thread.
 * Whoever adds work bounds how much of it waits. Decision 0034.
 */
export class SpacedWork {
  readonly #waiting: (() => void)[] = [];
  readonly #nowMs: () => number;
  readonly #rest: (next: () => void, ms: number) => void;
  #isRunning = false;

  /** @param rest calls `next` after so many ms; tests give a clock and a rest of their own */
  constructor(
    nowMs: () => number = () => performance.now(),
    rest: (next: () => void, ms: number) => void = (next, ms) => void setTimeout(next, ms),
  ) {
    this.#nowMs = nowMs;
    this.#rest = rest;
  }

  /** Runs this work in a later tick. @param work never throws */
  add(work: () => void): void {
    this.#waiting.push(work);
    if (this.#isRunning) return;
    this.#isRunning = true;
    setImmediate(this.#runNext);
  }

  readonly #runNext = (): void => {
    const work = this.#waiting.shift();
    if (!work) {
      this.#isRunning = false;
      return;
    }
    const fromMs = this.#nowMs();
    work();
    // In the next tick: the promises that the work has resolved are followed up before it, and count as its time.
    setImmediate(() => this.#rest(this.#runNext, this.#nowMs() - fromMs));
  };
}
