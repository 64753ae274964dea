import { expect, test } from "vitest";
import { askAgainMs } from "../../../src/core/tasks.ts";

test.each([
  ["young", 10_000, 0, 7_200_000, 10_000],
  ["near its maximum age", 10_000, 7_195_000, 7_200_000, 5_000],
  ["at it", 10_000, 7_200_000, 7_200_000, 0],
  ["beyond it", 10_000, 9_000_000, 7_200_000, 0],
  ["never asked for in time otherwise", 3_600_000, 0, 5_000, 5_000],
])(
  "a task that is %s is asked for again no later than it is too old",
  (_, everyMs, ageMs, maxAgeMs, wanted) => {
    expect(askAgainMs(everyMs, ageMs, maxAgeMs)).toBe(wanted);
  },
);
