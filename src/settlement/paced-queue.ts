/** What must wait for its turn begins together with all whose turn comes within this time: each wake-up has its price. */
const WAIT_MIN_MS = 100;

/**
 * Work that must not crowd out other work: at most `concurrency` at a time, at most `perSecond` begun in a second,
 * at most `entriesMax` waiting. What an idle second has left over may be caught up on.
 */
export interface PacedQueue<Item> {
  /** How many more may wait. */
  room(): number;
  /** Takes an item; for as many as there is room. */
  add(item: Item): void;
  /** Begins nothing new for a while. */
  pause(ms: number): void;
  /** Resolves once nothing waits and nothing is under way. */
  idle(): Promise<void>;
  /** Forgets what waits; `idle` then waits for what is under way. */
  stop(): void;
}

/** @param work must not throw */
export function createPacedQueue<Item>(options: {
  concurrency: number;
  perSecond: () => number;
  entriesMax: number;
  work(item: Item): Promise<void>;
}): PacedQueue<Item> {
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
    room: () => (stopped ? 0 : options.entriesMax - waiting.length),
    add(item) {
      waiting.push(item);
      advance();
    },
    pause(ms) {
      nextStartMs = Math.max(nextStartMs, performance.now() + ms);
      // Woken just when it ends: later, all that it held back would begin at once.
      clearTimeout(timer);
      timer = undefined;
      advance();
    },
    idle: () =>
      new Promise((resolve) => {
        idleWaiters.push(resolve);
        advance();
      }),
    stop() {
      stopped = true;
      clearTimeout(timer);
      waiting.length = 0;
      advance();
    },
  };
}
