/** Pipelined requests of one address that one tick of the event loop takes in; those behind them wait for a rest. */
const PIPELINED_PER_TICK_MAX = 64;
/** How long nothing more is read from such an address: some steps of everybody else's requests. */
const REST_MS = 50;

/**
 * Lets addresses rest that pipeline on many connections at once. One tick of the event loop reads up to 64 KiB from each
 * connection that is ready, and taking a request's head apart costs time even where the request is refused: everybody
 * else would wait until all of these connections have been read. Requests that are not pipelined are not counted.
 * Decision 0035.
 */
export function createReadRests(on: {
  /** From now on nothing is to be read from this address. */
  began(address: string): void;
  ended(address: string): void;
}) {
  const resting = new Set<string>();
  /** In this tick. */
  const counts = new Map<string, number>();
  const clear = (): void => counts.clear();

  function rest(address: string): void {
    resting.add(address);
    setTimeout(() => {
      resting.delete(address);
      on.ended(address);
    }, REST_MS).unref();
    on.began(address);
  }

  return {
    has: (address: string): boolean => resting.has(address),
    /** A request has come on a connection whose latest one is not answered yet. */
    countPipelined(address: string): void {
      if (resting.has(address)) return;
      const count = (counts.get(address) ?? 0) + 1;
      if (counts.size === 0) setImmediate(clear);
      counts.set(address, count);
      if (count > PIPELINED_PER_TICK_MAX) rest(address);
    },
  };
}
