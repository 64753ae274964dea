const SLICES = 10;

/** The message of ioredis's own command timeout; `Deadlines` use the same. */
export const TIMED_OUT = "Command timed out";

export interface Deadline {
  readonly atSlice: number;
  readonly expire: () => void;
  before: Deadline | undefined;
  after: Deadline | undefined;
}

/**
 * Time limits in slices. A slice counts once its time is over and pending input was read after that, so that a process that was blocked
 * for seconds reads the replies that came meanwhile. Decision 0020.
 */
export class Deadlines {
  readonly #sliceMs: number;
  /** In the order in which they expire. A `Set` would keep each one alive until the next major garbage collection. Decision 0072. */
  #oldest: Deadline | undefined;
  #newest: Deadline | undefined;
  #slice = 0;
  #isCounting = false;

  /** @param timeoutMs on a free event loop; up to a tenth more */
  constructor(timeoutMs: number) {
    this.#sliceMs = timeoutMs / SLICES;
  }

  begin(expire: () => void): Deadline {
    const newest = this.#newest;
    const deadline = { atSlice: this.#slice + SLICES + 1, expire, before: newest, after: undefined };
    if (newest) newest.after = deadline;
    else this.#oldest = deadline;
    this.#newest = deadline;
    if (!this.#isCounting) this.#count();
    return deadline;
  }

  end(deadline: Deadline): void {
    const { before, after } = deadline;
    if (before) before.after = after;
    else if (this.#oldest === deadline) this.#oldest = after;
    if (after) after.before = before;
    else if (this.#newest === deadline) this.#newest = before;
    deadline.before = undefined;
    deadline.after = undefined;
  }

  /** The work's result. @throws Error `Command timed out`, while the work itself goes on */
  readonly within = <T>(work: Promise<T>): Promise<T> =>
    new Promise((resolve, reject) => {
      const deadline = this.begin(() => reject(new Error(TIMED_OUT)));
      work.then(
        (result) => {
          this.end(deadline);
          resolve(result);
        },
        (error: unknown) => {
          this.end(deadline);
          reject(error);
        },
      );
    });

  #count(): void {
    this.#isCounting = true;
    // Immediates run after the poll phase, which reads what has arrived.
    setTimeout(() => setImmediate(this.#endSlice), this.#sliceMs).unref();
  }

  readonly #endSlice = (): void => {
    this.#slice++;
    while (this.#oldest && this.#oldest.atSlice <= this.#slice) {
      const { expire } = this.#oldest;
      this.end(this.#oldest);
      expire();
    }
    if (this.#oldest) this.#count();
    else this.#isCounting = false;
  };
}
