/**
 * What one tick of the event loop takes in from one address; what is behind waits for a rest. A pipelined request counts
 * as one. 1 MiB of bodies, or 3,200 pieces of them, are as much work as 64 heads that are refused.
 */
const COST_PER_TICK_MAX = 64;
const COST_PER_PIECE = 1 / 50;
const COST_PER_BYTE = 1 / 16_384;
/**
 * How long nothing more is read from such an address: the requests of others take some steps meanwhile. On a busy machine
 * a tick may take longer; the rest is then so many times as long, and bounded.
 */
const REST_MS_MIN = 50;
const REST_MS_MAX = 1000;
const REST_TICKS = 4;

export type ReadRests = ReturnType<typeof createReadRests>;

/**
 * Lets addresses rest that send much on many connections at once. One tick of the event loop reads 64 KiB and more from
 * each connection that is ready, and taking it apart costs time even where the request is refused: everybody else would
 * wait until all of these connections have been read. Requests that come one after the other are not counted, nor are
 * uploads. Decision 0035.
 */
export function createReadRests(on: {
  /** From now on nothing is to be read from this address. */
  began(address: string): void;
  ended(address: string): void;
}) {
  const resting = new Set<string>();
  /** In this tick. */
  const spent = new Map<string, number>();
  let tickFromMs = 0;

  /** Only now is it known how long the tick took. */
  function endTick(): void {
    const tickMs = performance.now() - tickFromMs;
    const restMs = Math.min(REST_MS_MAX, Math.max(REST_MS_MIN, REST_TICKS * tickMs));
    for (const [address, cost] of spent)
      if (cost > COST_PER_TICK_MAX) setTimeout(end, restMs, address).unref();
    spent.clear();
  }

  function end(address: string): void {
    resting.delete(address);
    on.ended(address);
  }

  function spend(address: string, cost: number): void {
    if (resting.has(address)) return;
    if (spent.size === 0) {
      tickFromMs = performance.now();
      setImmediate(endTick);
    }
    const sum = (spent.get(address) ?? 0) + cost;
    spent.set(address, sum);
    if (sum <= COST_PER_TICK_MAX) return;
    resting.add(address);
    on.began(address);
  }

  return {
    has: (address: string): boolean => resting.has(address),
    /** A request has come on a connection whose latest one is not answered yet. */
    pipelined: (address: string): void => spend(address, 1),
    /** A piece of a body of so many bytes was read. */
    bodyRead: (address: string, bytes: number): void =>
      spend(address, COST_PER_PIECE + bytes * COST_PER_BYTE),
  };
}
