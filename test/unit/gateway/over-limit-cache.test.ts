import { expect, test } from "vitest";
import type { LimitState } from "../../../src/domain/limits.ts";
import { createOverLimitCache, type OverLimitCache } from "../../../src/gateway/key-memory.ts";

const STATE: LimitState = { limit: 20, remaining: 0, resetAtMs: 5000, concurrentLimit: 3, active: 1 };

/** As many refusals in a row as make a key one that hammers. */
function hammer(keys: OverLimitCache, keyId: string, calledAtMs: number, waitMs: number, times = 5): void {
  const refused = { state: STATE, tier: "standard", limitOf: "account", calledAtMs, waitMs } as const;
  for (let at = 0; at < times; at++) keys.put(keyId, refused);
}

/** A memory whose clock stands at `clock.ms`. */
function given() {
  const clock = { ms: 10_000 };
  return { clock, keys: createOverLimitCache(() => clock.ms) };
}

test("a key that hammers gets the same numbers and a wait that shrinks, for a second", () => {
  const { clock, keys } = given();
  hammer(keys, "key_a", clock.ms, 30_500);
  expect(keys.get("key_a")).toEqual({
    state: STATE,
    tier: "standard",
    limitOf: "account",
    retryAfterSeconds: 31,
  });
  clock.ms += 999;
  expect(keys.get("key_a")?.retryAfterSeconds).toBe(30);
  clock.ms += 1;
  expect(keys.get("key_a")).toBeUndefined();
});

test("nobody is refused from memory once one more fits, counted from before the store was asked", () => {
  const { clock, keys } = given();
  const calledAtMs = clock.ms;
  clock.ms += 40;
  hammer(keys, "key_a", calledAtMs, 100);
  clock.ms = calledAtMs + 99;
  expect(keys.get("key_a")?.retryAfterSeconds).toBe(1);
  clock.ms = calledAtMs + 100;
  expect(keys.get("key_a")).toBeUndefined();
});

test("another key is not refused, and the oldest of too many is forgotten", () => {
  const { clock, keys } = given();
  for (let at = 0; at <= 10_000; at++) hammer(keys, `key_${at}`, clock.ms, 30_000);
  expect(keys.get("key_x")).toBeUndefined();
  expect(keys.get("key_0")).toBeUndefined();
  expect(keys.get("key_10000")).toBeDefined();
});

test("a key that is refused now and then is always asked for", () => {
  const { clock, keys } = given();
  hammer(keys, "key_a", clock.ms, 30_000, 4);
  expect(keys.get("key_a")).toBeUndefined();
  clock.ms += 2000;
  hammer(keys, "key_a", clock.ms, 30_000, 4);
  expect(keys.get("key_a")).toBeUndefined();
  hammer(keys, "key_a", clock.ms, 30_000, 1);
  expect(keys.get("key_a")).toBeDefined();
});
