import { expect, test } from "vitest";
import { createKeyUsages } from "../../../src/gateway/key-memory.ts";
import { keyRef } from "../../../src/records/names.ts";

function givenRate() {
  const clock = { ms: 0 };
  const usages = createKeyUsages(() => clock.ms);
  const key = keyRef("key_a", "acc", 1);
  /** How many of `count` requests pass now. */
  const passing = (count: number, perSecond = 100, of = key): number =>
    Array.from({ length: count }, () => usages.take(usages.of(of), perSecond)).filter(Boolean).length;
  return { clock, passing };
}

test("a burst of two seconds' worth passes, then the rate, never more", () => {
  const { clock, passing } = givenRate();
  expect(passing(1000)).toBe(200);
  clock.ms += 5;
  expect(passing(10)).toBe(0);
  clock.ms += 6;
  expect(passing(10)).toBe(1);
  clock.ms += 1000;
  expect(passing(1000)).toBe(100);
  clock.ms += 3_600_000;
  expect(passing(1000), "an idle hour saves up no more than a burst").toBe(200);
});

test("each key has its own, and a lower rate holds at once", () => {
  const { passing } = givenRate();
  expect(passing(300)).toBe(200);
  expect(passing(300, 100, keyRef("key_b", "acc", 1))).toBe(200);
  const { clock, passing: others } = givenRate();
  expect(others(1)).toBe(1);
  clock.ms += 60_000;
  expect(others(300, 10)).toBe(20);
});
