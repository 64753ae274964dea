import { afterEach, expect, test, vi } from "vitest";
import { nextTryAfterMs } from "../../../src/webhooks/delivery-worker.ts";

const RETRIES_MS = [5_000, 300_000];

afterEach(() => vi.restoreAllMocks());

// Guarantee: receivers that failed together are not called together again, and nobody is called early.
test.each([
  [0, 1],
  [0.5, 1.05],
  [1, 1.1],
])(
  "a try follows as scheduled or a tenth later at most: with chance %d after %d times the delay",
  (chance, share) => {
    vi.spyOn(Math, "random").mockReturnValue(chance);
    expect(nextTryAfterMs(1, RETRIES_MS)).toBe(Math.ceil(5_000 * share));
    expect(nextTryAfterMs(2, RETRIES_MS)).toBe(Math.ceil(300_000 * share));
    expect(nextTryAfterMs(1, RETRIES_MS, 60_000), "as the receiver asks").toBe(Math.ceil(60_000 * share));
    expect(nextTryAfterMs(2, RETRIES_MS, 60_000), "no sooner, if it asks").toBe(Math.ceil(300_000 * share));
  },
);

test("after the last try there is none, whatever the receiver asks", () => {
  expect(nextTryAfterMs(3, RETRIES_MS)).toBeUndefined();
  expect(nextTryAfterMs(3, RETRIES_MS, 60_000)).toBeUndefined();
  expect(nextTryAfterMs(1, [])).toBeUndefined();
});
