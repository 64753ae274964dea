import { expect, test } from "vitest";
import { createWriteBudget, type WriteKind } from "../../../../src/admin/api/authorize.ts";

const DAY_MS = 86_400_000;

function given(bounds = { writesPerMinute: 2, bytesPerDay: 10_000 }) {
  let nowMs = 1_000_000;
  const budget = createWriteBudget(
    () => bounds,
    () => nowMs,
  );
  /** @returns undefined, or the seconds to wait */
  const take = (root: string | undefined, bytes = 0, kind: WriteKind = "adds"): number | undefined => {
    try {
      budget.take(root, kind, bytes);
      return undefined;
    } catch (error) {
      return Number((error as { headers: Record<string, string> }).headers["Retry-After"]);
    }
  };
  return {
    take,
    after(ms: number): void {
      nowMs += ms;
    },
  };
}

test("writes count per family and minute, those that end something apart, and refused ones not", () => {
  const { take, after } = given();
  expect([take("tok_a"), take("tok_a"), take("tok_a")]).toEqual([undefined, undefined, 60]);
  after(59_500);
  expect([take("tok_a"), take("tok_b"), take(undefined), take("tok_a", 0, "ends")]).toEqual([
    1,
    ...[undefined, undefined, undefined],
  ]);
  after(500);
  expect([take("tok_a"), take("tok_a"), take("tok_a")]).toEqual([undefined, undefined, 60]);
});

test("bytes count per day: the body and the record of each write", () => {
  const { take, after } = given({ writesPerMinute: 1000, bytesPerDay: 10_000 });
  expect(take("tok_a", 9488)).toBeUndefined();
  expect(take("tok_a")).toBe(DAY_MS / 1000);
  after(DAY_MS - 1);
  expect(take("tok_a")).toBe(1);
  after(1);
  expect(take("tok_a", 9489)).toBe(DAY_MS / 1000);
  expect(take("tok_a", 9488)).toBeUndefined();
});

// Guarantee: what is counted has a bound, and operators' tokens alone can reach it.
test("the family that was counted first is forgotten where there are 10,000", () => {
  const { take } = given({ writesPerMinute: 1, bytesPerDay: 10_000 });
  for (let at = 0; at < 10_000; at++) take(`tok_${at}`);
  expect(take("tok_9999")).toBe(60);
  take("tok_new");
  expect(take("tok_0")).toBeUndefined();
});
