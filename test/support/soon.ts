import { vi } from "vitest";

/** Tries assertions again until they hold. Only a test that fails waits as long as this does: a busy machine needs some of it. */
export const soon = <T>(check: () => T | Promise<T>): Promise<T> =>
  vi.waitFor(check, { timeout: 50_000, interval: 5 });
