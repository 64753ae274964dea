/**
 * What one tick of the event loop takes in from one address; what is behind waits for a rest. A pipelined request counts
 * as one. 1 MiB of bodies, or 3,200 pieces of them, are as much work as 64 heads that are refused.
 */
const COST_PER_TICK_MAX = 64;
const COST_PER_PIECE = 1 / 50;
const COST_PER_BYTE = 1 / 16_384;
/** What came with the head of a chunked body is being taken apart already. It may be in pieces of one byte, `1 CRLF a CRLF`. */
const COST_PER_CHUNKED_BYTE = COST_PER_PIECE / 6;
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
 * wait until all of these connections have been read. Requests that come one after the other are not counted, but for their
 * chunked bodies, nor are the bytes of uploads. Decision 0035.
 *
 * What an address sends while it rests is there to be read at once when the rest ends. So in one tick the rest of one
 * address ends, and the next one's only after a pause: many addresses take turns, and together take no more than one does.
 */
export function createReadRests(on: {
  /** From now on nothing is to be read from this address. */
  began(address: string): void;
  ended(address: string): void;
}) {
  const resting = new Set<string>();
  /** Those of them that have rested long enough and wait for their tick. */
  const rested = new Set<string>();
  /** In this tick. */
  const spent = new Map<string, number>();
  let count = 0;
  let tickFromMs = 0;
  /** As `performance.now()`: until then no rest ends. */
  let allRestUntilMs = 0;

  /** Only now is it known how long the tick took. */
  function endTick(): void {
    const nowMs = performance.now();
    const pauseMs = Math.min(REST_MS_MAX, REST_TICKS * (nowMs - tickFromMs));
    for (const [address, cost] of spent) {
      if (cost <= COST_PER_TICK_MAX) continue;
      allRestUntilMs = nowMs + pauseMs;
      setTimeout(end, Math.max(REST_MS_MIN, pauseMs), address).unref();
    }
    spent.clear();
  }

  function end(address: string): void {
    rested.add(address);
    if (rested.size === 1) setImmediate(endNext);
  }

  function endNext(): void {
    const [address] = rested;
    if (address === undefined) return;
    const leftMs = allRestUntilMs - performance.now();
    if (leftMs > 0) {
      setTimeout(endNext, leftMs).unref();
      return;
    }
    rested.delete(address);
    // By then it is known what this one's tick took.
    if (rested.size > 0) setImmediate(() => setImmediate(endNext));
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
    count++;
    on.began(address);
  }

  return {
    has: (address: string): boolean => resting.has(address),
    /** Rests so far. */
    count: (): number => count,
    /** A request has come on a connection whose latest one is not answered yet. */
    pipelined: (address: string): void => spend(address, 1),
    /** The head of a chunked body has come, and so many bytes with it. */
    chunked: (address: string, bytes: number): void => spend(address, bytes * COST_PER_CHUNKED_BYTE),
    /** A piece of a body of so many bytes was read. */
    bodyRead: (address: string, bytes: number): void =>
      spend(address, COST_PER_PIECE + bytes * COST_PER_BYTE),
  };
}
