/** A gateway repeats by intervals of about this or more what hardly ever finds something, such as checks of an open connection. */
const LONG_MS = 9_000;
const TIMES = 50;

/** Who sets the timeout: those of requests and commands are as long as ever, also within a round. */
const isOfRepeatedWork = (): boolean => new Error().stack?.split("\n")[3]?.includes("repeated-work") === true;

/**
 * Makes long intervals of gateways in this process short, so that a test need not wait for what their next round finds. For
 * `beforeAll` and `beforeEach`, which call what it returns at the end.
 */
export function hasten(): () => void {
  const { setInterval, setTimeout } = globalThis;
  const shorter = (ms: number): number => (ms < LONG_MS ? ms : ms / TIMES);
  const interval = <Args extends unknown[]>(run: (...args: Args) => void, ms = 0, ...args: Args) =>
    setInterval(run, shorter(ms), ...args);
  const timeout = <Args extends unknown[]>(run: (...args: Args) => void, ms = 0, ...args: Args) =>
    setTimeout(run, ms >= LONG_MS && isOfRepeatedWork() ? shorter(ms) : ms, ...args);
  globalThis.setInterval = as(setInterval, interval);
  globalThis.setTimeout = as(setTimeout, timeout);
  return () => {
    globalThis.setInterval = setInterval;
    globalThis.setTimeout = setTimeout;
  };
}

/** With what hangs on the original, such as its promise. */
const as = <Original extends object>(original: Original, other: object): Original =>
  Object.defineProperties(other, Object.getOwnPropertyDescriptors(original)) as Original;
