const SLICES = 10;

/** The message of ioredis's own command timeout; `createDeadlines` uses the same. */
export const TIMED_OUT = "Command timed out";

/** One piece of work with a time limit. */
export interface Deadline {
  atSlice: number;
  expire: () => void;
}

export type Deadlines = ReturnType<typeof createDeadlines>;

/**
 * Time limits that do not count the time in which the event loop of this process is blocked. A limit is a number of slices.
 * A slice counts once its time is over and pending input has been read after that: a process that was busy for seconds has
 * used one slice, and reads the replies that came meanwhile. Decision 0036.
 * @param timeoutMs the limit of each piece of work while the event loop is free; up to a tenth more
 */
export function createDeadlines(timeoutMs: number) {
  /** Oldest first, and so in the order in which they expire: all have the same limit. */
  const pending = new Set<Deadline>();
  let slice = 0;
  let isCounting = false;

  function count(): void {
    isCounting = true;
    // Immediates run after the poll phase, which reads what has arrived.
    setTimeout(() => setImmediate(endSlice), timeoutMs / SLICES).unref();
  }

  function endSlice(): void {
    slice++;
    for (const deadline of pending) {
      if (deadline.atSlice > slice) break;
      pending.delete(deadline);
      deadline.expire();
    }
    if (pending.size > 0) count();
    else isCounting = false;
  }

  /** Begins to count. @param expire is called once when the limit is over, unless `end` comes first */
  function begin(expire: () => void): Deadline {
    const deadline = { atSlice: slice + SLICES + 1, expire };
    pending.add(deadline);
    if (!isCounting) count();
    return deadline;
  }
  const end = (deadline: Deadline): void => void pending.delete(deadline);

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
