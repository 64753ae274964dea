import { JSON_BODY_BYTES_MAX } from "../domain/request-limits.ts";
import type { SpacedWork } from "./spaced-work.ts";

/**
 * Longest answer that is read, bytes. An answer that is not read leaves a video that was made and is not charged, so it is
 * as long as an upstream can get that repeats the largest request: each byte of it written as `\uXXXX`, and 64 KiB for
 * the upstream's own words. Decision 0034.
 */
export const ANSWER_BYTES_MAX = 6 * JSON_BODY_BYTES_MAX + 64 * 1024;

/** Up to here an answer is read without asking; nearly all are shorter than 1 KiB. */
export const SMALL_ANSWER_BYTES = 64 * 1024;

/** Longer answers that are read at a time. With 256 connections all answers together hold at most 16 + 26 MiB. */
const LARGE_ANSWERS_MAX = 16;

/** An answer under way that can be told to wait; undici's controller is one. */
interface Reading {
  pause(): void;
  resume(): void;
}

/**
 * Places for answers beyond `SMALL_ANSWER_BYTES`: one that finds none is paused until another one has been parsed. Parsing
 * one takes some 10 ms, so they are parsed one at a time, with a rest between two.
 */
export class LargeAnswers {
  #free = LARGE_ANSWERS_MAX;
  readonly #waiting = new Set<Reading>();
  readonly #work: SpacedWork;

  constructor(work: SpacedWork) {
    this.#work = work;
  }

  /** Parses an answer that has come whole, once it is its turn. */
  parse(work: () => void): void {
    this.#work.add(work);
  }

  /** Takes a place for this answer, or pauses it until there is one. */
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
