const SLICES = 10;

/** The message of ioredis's own command timeout; `createDeadlines` uses the same. */
export const TIMED_OUT = "Command timed out";

export interface Deadline {
  readonly atSlice: number;
  readonly expire: () => void;
  before: Deadline | undefined;
  after: Deadline | undefined;
}

export type Deadlines = ReturnType<typeof createDeadlines>;

/**
 * Time limits in slices. A slice counts once its time is over and pending input was read after that, so that a process that was blocked
 * for seconds reads the replies that came meanwhile. Decision 0020. @param timeoutMs on a free event loop; up to a tenth more
 */
export function createDeadlines(timeoutMs: number) {
  /** In the order in which they expire. A `Set` would keep each one alive until the next major garbage collection. Decision 0072. */
  let oldest: Deadline | undefined;
  let newest: Deadline | undefined;
  let slice = 0;
  let isCounting = false;

  function count(): void {
    isCounting = true;
    // Immediates run after the poll phase, which reads what has arrived.
    setTimeout(() => setImmediate(endSlice), timeoutMs / SLICES).unref();
  }

  function endSlice(): void {
    slice++;
    while (oldest && oldest.atSlice <= slice) {
      const { expire } = oldest;
      end(oldest);
      expire();
    }
    if (oldest) count();
    else isCounting = false;
  }

  function begin(expire: () => void): Deadline {
    const deadline = { atSlice: slice + SLICES + 1, expire, before: newest, after: undefined };
    if (newest) newest.after = deadline;
    else oldest = deadline;
    newest = deadline;
    if (!isCounting) count();
    return deadline;
  }

  function end(deadline: Deadline): void {
    const { before, after } = deadline;
    if (before) before.after = after;
    else if (oldest === deadline) oldest = after;
    if (after) after.before = before;
    else if (newest === deadline) newest = before;
    deadline.before = undefined;
    deadline.after = undefined;
  }

  return {
    begin,
    end,
    /** The work's result. @throws Error `Command timed out`, while the work itself goes on */
    within: <T>(work: Promise<T>): Promise<T> =>
      new Promise((resolve, reject) => {
        const deadline = begin(() => reject(new Error(TIMED_OUT)));
        work.then(
          (result) => {
            end(deadline);
            resolve(result);
          },
          (error: unknown) => {
            end(deadline);
            reject(error);
          },
        );
      }),
  };
}
