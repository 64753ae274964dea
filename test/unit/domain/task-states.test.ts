import { expect, test } from "vitest";
import { TASK_ID } from "../../../src/domain/answers.ts";
import { nextPollMs } from "../../../src/scripts/holds.ts";

test.each([
  ["young", 10_000, 0, 7_200_000, 10_000],
  ["near its maximum age", 10_000, 7_195_000, 7_200_000, 5_000],
  ["at it", 10_000, 7_200_000, 7_200_000, 10_000],
  ["beyond it", 10_000, 9_000_000, 7_200_000, 10_000],
  ["never asked for in time otherwise", 3_600_000, 0, 5_000, 5_000],
])(
  "a task that is %s is asked for again no later than it is too old, and never at once",
  (_, everyMs, ageMs, maxAgeMs, wanted) => {
    expect(nextPollMs(everyMs, ageMs, maxAgeMs)).toBe(wanted);
  },
);

// Guarantee: a task id is one step of a path, wherever it goes. A URL parser takes `.` and `..` for something else.
test("a task id is 1 to 200 of its characters, but neither . nor ..", () => {
  for (const id of ["a", "-", "~", "...", ".a", "..a", "a..", "._", "x".repeat(200), ".".repeat(200)])
    expect(TASK_ID.test(id), id).toBe(true);
  for (const id of [
    "",
    ".",
    "..",
    "a/b",
    "a b",
    "a\n",
    "%2e",
    "x".repeat(201),
    ".".repeat(201),
    `..${"x".repeat(199)}`,
  ])
    expect(TASK_ID.test(id), id).toBe(false);
});
