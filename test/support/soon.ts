import { pauseBetweenLooks } from "./until.ts";

/** Only a test that fails waits as long: a busy machine needs some of it. */
const PATIENCE_MS = 50_000;

/** Tries assertions again until they hold. */
export async function soon<T>(check: () => T | Promise<T>): Promise<T> {
  const sinceMs = performance.now();
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (performance.now() - sinceMs > PATIENCE_MS) throw error;
    }
    await pauseBetweenLooks(sinceMs);
  }
}
