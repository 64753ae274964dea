/** All items that are due within this time start together, since each timer costs a wake-up. */
const WAIT_MIN_MS = 100;

/**
 * A queue for work that must not crowd out other work: at most `concurrency` items at a time, at most `perSecond` started in
 * a second, at most `entriesMax` waiting. Starts that an idle second has left over may be caught up on.
 * @param options.work must not throw
 */
export function createPacedQueue<Item>(options: {
  concurrency: number;
  perSecond: () => number;
  entriesMax: number;
  work(item: Item): Promise<void>;
}) {
  const waiting: Item[] = [];
  let running = 0;
  let nextStartMs = 0;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let idleWaiters: (() => void)[] = [];

  function advance(): void {
    while (!stopped && running < options.concurrency && waiting.length > 0) {
      const waitMs = nextStartMs - performance.now();
      if (waitMs > 0) {
        timer ??= setTimeout(
          () => {
            timer = undefined;
            advance();
          },
          Math.max(WAIT_MIN_MS, Math.ceil(waitMs)),
        );
        return;
      }
      nextStartMs = Math.max(nextStartMs, performance.now() - 1000) + 1000 / options.perSecond();
      start(waiting.shift()!);
    }
    if (running > 0 || waiting.length > 0) return;
    for (const resolve of idleWaiters) resolve();
    idleWaiters = [];
  }

  function start(item: Item): void {
    running++;
    void options.work(item).finally(() => {
      running--;
      advance();
    });
  }

  return {
    /** How many more may wait. */
    room: (): number => (stopped ? 0 : options.entriesMax - waiting.length),
    /** Takes an item; only while there is room. */
    add(item: Item): void {
      waiting.push(item);
      advance();
    },
    /** Starts nothing new for a while. */
    pause(ms: number): void {
      nextStartMs = Math.max(nextStartMs, performance.now() + ms);
      // A timer for the very end of the pause: later, all delayed items would start at once.
      clearTimeout(timer);
      timer = undefined;
      advance();
    },
    /** Resolves once nothing waits and nothing is under way. */
    idle: (): Promise<void> =>
      new Promise((resolve) => {
        idleWaiters.push(resolve);
        advance();
      }),
    /** Drops all waiting items; `idle` then waits for those under way. */
    stop(): void {
      stopped = true;
      clearTimeout(timer);
      waiting.length = 0;
      advance();
    },
  };
}

export type PacedQueue<Item> = ReturnType<typeof createPacedQueue<Item>>;
