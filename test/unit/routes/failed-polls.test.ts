import { expect, test } from "vitest";
import { refuse } from "../../../src/core/errors.ts";
import { createFailedPolls } from "../../../src/routes/failed-polls.ts";

const failed = refuse("upstream_failed", { retryAfterSeconds: 5 });

function given() {
  const clock = { ms: 1000 };
  return { clock, polls: createFailedPolls(() => clock.ms) };
}

test("a failed poll is repeated until its retryAfter is over, with what is left of it", () => {
  const { clock, polls } = given();
  expect(polls.recall("a")).toBeUndefined();
  polls.ended("a", failed);
  expect(polls.recall("a")).toMatchObject({ name: "upstream_failed", status: 502, retryAfterSeconds: 5 });
  clock.ms += 3500;
  expect(polls.recall("a")).toMatchObject({ retryAfterSeconds: 2 });
  expect(polls.recall("b"), "another task is asked for").toBeUndefined();
  clock.ms += 1500;
  expect(polls.recall("a"), "nothing is kept for longer").toBeUndefined();
});

test("an answer ends what is remembered of its task", () => {
  const { polls } = given();
  polls.ended("a", failed);
  polls.ended("a", undefined);
  expect(polls.recall("a")).toBeUndefined();
});

// Guarantee: however many tasks customers poll, an upstream that is down is polled once per retryAfter and process.
test("after ten tasks in a row one poll per retryAfter goes through, until one is answered", () => {
  const { clock, polls } = given();
  const ask = (task: string): boolean => {
    if (polls.recall(task)) return false;
    polls.ended(task, failed);
    return true;
  };
  const tasks = Array.from({ length: 500 }, (_, nth) => `task ${nth}`);
  expect(tasks.filter(ask)).toHaveLength(10);
  for (let pause = 0; pause < 5; pause++) {
    clock.ms += 5000;
    expect(tasks.filter(ask), "one goes through").toHaveLength(1);
  }
  clock.ms += 5000;
  expect(polls.recall("task 0"), "the one that finds out").toBeUndefined();
  expect(polls.recall("task 1"), "the others wait while it hangs").toBeDefined();
  polls.ended("task 0", undefined);
  expect(tasks.filter((task) => polls.recall(task))).toEqual([]);
});

test("one task that fails again and again does not hold up others", () => {
  const { clock, polls } = given();
  for (let nth = 0; nth < 100; nth++) {
    clock.ms += 5000;
    expect(polls.recall("broken")).toBeUndefined();
    polls.ended("broken", failed);
  }
  expect(polls.recall("sound")).toBeUndefined();
});

test("answers in between keep the upstream from being taken as down", () => {
  const { polls } = given();
  for (let nth = 0; nth < 100; nth++) polls.ended(`task ${nth}`, nth % 9 === 8 ? undefined : failed);
  expect(polls.recall("sound")).toBeUndefined();
});
