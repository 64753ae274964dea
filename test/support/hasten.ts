/** A gateway repeats by intervals of at least so long what hardly ever finds something, such as checks of an open connection. */
const LONG_MS = 10_000;
const TIMES = 50;

/**
 * Makes long intervals of gateways in this process short, so that a test need not wait for what their next round finds. For
 * `beforeAll` and `beforeEach`, which call what it returns at the end.
 */
export function hasten(): () => void {
  const { setInterval } = globalThis;
  const hastened = <Args extends unknown[]>(run: (...args: Args) => void, ms = 0, ...args: Args) =>
    setInterval(run, ms < LONG_MS ? ms : ms / TIMES, ...args);
  globalThis.setInterval = Object.assign(hastened, setInterval) as typeof setInterval;
  return () => {
    globalThis.setInterval = setInterval;
  };
}
