import { setTimeout as delay } from "node:timers/promises";

/** Only a test that fails waits so long; a busy machine needs some of it. */
const PATIENCE_MS = 60_000;
const FIRST_PAUSE_MS = 5;
const LONGEST_PAUSE_MS = 50;
/** Of the time waited so far. */
const PAUSE = 0.1;

/** Waits between two looks: the longer it has taken, the longer, since looks take the processor from what is waited for. */
export const pauseBetweenLooks = (sinceMs: number): Promise<void> =>
  delay(Math.min(LONGEST_PAUSE_MS, Math.max(FIRST_PAUSE_MS, PAUSE * (performance.now() - sinceMs))));

/** Waits until a condition holds; fails loudly when it does not within a minute. */
export async function until(
  condition: () => Promise<boolean> | boolean,
  what = "the condition",
): Promise<void> {
  const sinceMs = performance.now();
  while (!(await condition())) {
    if (performance.now() - sinceMs > PATIENCE_MS) throw new Error(`waited a minute in vain for ${what}`);
    await pauseBetweenLooks(sinceMs);
  }
}
