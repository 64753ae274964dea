/**
 * The store's clock as well as this process knows it: a hint for `not_after` and for reports. Scripts read the store's own.
 * @param testNowMs replaces the store's clock, for the scripts too, Unix ms; for tests
 */
export function createStoreClock(testNowMs?: () => number) {
  /** Redis time minus this process's monotonic clock. */
  let offsetMs = 0;

  return {
    /** Unix ms. */
    nowMs: (): number => testNowMs?.() ?? Math.floor(monotonicMs() + offsetMs),
    /** The first ARGV of a script: empty for the store's own clock. */
    argument: (): string => (testNowMs ? String(testNowMs()) : ""),
    /**
     * Learns from a script that ran between `sentAtMs` and now. A reply that was read late does not set the clock back.
     * @param sentAtMs by `monotonicMs`
     */
    learn(storeNowMs: number, sentAtMs: number): void {
      offsetMs = Math.min(storeNowMs - sentAtMs, Math.max(storeNowMs - monotonicMs(), offsetMs));
    },
  };
}

export type StoreClock = ReturnType<typeof createStoreClock>;

/** Unix ms by a clock that never steps. */
export const monotonicMs = (): number => performance.timeOrigin + performance.now();
