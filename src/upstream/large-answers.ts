import { JSON_BODY_BYTES_MAX } from "../domain/limits.ts";

/** A longer answer leaves a video that was made and not charged: the largest request repeated as `\uXXXX`, and 64 KiB. Decision 0035. */
export const ANSWER_BYTES_MAX = 6 * JSON_BODY_BYTES_MAX + 64 * 1024;

/** Up to this size an answer needs no place; nearly all are shorter than 1 KiB. */
export const SMALL_ANSWER_BYTES = 64 * 1024;

/** Longer answers that are read at a time. With 256 connections all answers together hold at most 16 + 26 MiB. */
const LARGE_ANSWERS_MAX = 16;

/** An answer in progress that can be paused; undici's controller is one. */
interface Reading {
  pause(): void;
  resume(): void;
}

/** An answer of more than `SMALL_ANSWER_BYTES` that finds no place is paused until another has been parsed. */
export class LargeAnswers {
  #free = LARGE_ANSWERS_MAX;
  readonly #waiting = new Set<Reading>();

  enter(reading: Reading): void {
    if (this.#free > 0) {
      this.#free--;
      return;
    }
    this.#waiting.add(reading);
    reading.pause();
  }

  /** Gives up the place of an answer, or its wait for one. Once for each `enter`. */
  leave(reading: Reading): void {
    if (this.#waiting.delete(reading)) return;
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#free++;
      return;
    }
    this.#waiting.delete(next);
    next.resume();
  }
}

/** After each piece the event loop is free for as long as it took: at most half of the thread. Callers bound what waits. Decision 0035. */
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
