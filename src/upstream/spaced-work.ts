/**
 * Runs long pieces of work on the main thread one at a time, in their order. After each one the event loop is free for
 * everything else for as long as that piece took, so that such work never takes more than half of the thread.
 * Callers bound how much work waits. Decision 0035.
 */
export class SpacedWork {
  readonly #waiting: (() => void)[] = [];
  readonly #nowMs: () => number;
  readonly #rest: (next: () => void, ms: number) => void;
  #isRunning = false;

  /** @param rest calls `next` after this time; tests pass their own clock and rest */
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
    // In the next tick, so that what follows the promises that the work resolved counts as its time.
    setImmediate(() => this.#rest(this.#runNext, this.#nowMs() - fromMs));
  };
}
