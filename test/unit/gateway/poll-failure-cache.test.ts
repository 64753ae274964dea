import { expect, test } from "vitest";
import { refuse } from "../../../src/domain/errors.ts";
import { createPollFailureCache } from "../../../src/gateway/poll.ts";

const failed = refuse("upstream_failed", { retryAfterSeconds: 5 });

function given() {
  const clock = { ms: 1000 };
  return { clock, polls: createPollFailureCache(() => clock.ms) };
}

test("a failed poll is repeated until its retryAfter is over, with what is left of it", () => {
  const { clock, polls } = given();
  expect(polls.get("customer", "a")).toBeUndefined();
  polls.record("customer", "a", failed);
  expect(polls.get("customer", "a")).toMatchObject({
    name: "upstream_failed",
    status: 502,
    retryAfterSeconds: 5,
  });
  clock.ms += 3500;
  expect(polls.get("customer", "a")).toMatchObject({ retryAfterSeconds: 2 });
  expect(polls.get("customer", "b"), "another task is asked for").toBeUndefined();
  clock.ms += 1500;
  expect(polls.get("customer", "a"), "nothing is kept for longer").toBeUndefined();
});

test("an answer ends what is remembered of its task", () => {
  const { polls } = given();
  polls.record("customer", "a", failed);
  polls.record("customer", "a", undefined);
  expect(polls.get("customer", "a")).toBeUndefined();
});

// Guarantee: however many tasks a customer polls, an upstream that is down is polled once per retryAfter for him.
test("after ten tasks in a row one poll per retryAfter goes through, until one is answered", () => {
  const { clock, polls } = given();
  const ask = (task: string): boolean => {
    if (polls.get("customer", task)) return false;
    polls.record("customer", task, failed);
    return true;
  };
  const tasks = Array.from({ length: 500 }, (_, nth) => `task ${nth}`);
  expect(tasks.filter(ask)).toHaveLength(10);
  for (let pause = 0; pause < 5; pause++) {
    clock.ms += 5000;
    expect(tasks.filter(ask), "one goes through").toHaveLength(1);
  }
  clock.ms += 5000;
  expect(polls.get("customer", "task 0"), "the one that finds out").toBeUndefined();
  expect(polls.get("customer", "task 1"), "the others wait while it hangs").toBeDefined();
  polls.record("customer", "task 0", undefined);
  expect(tasks.filter((task) => polls.get("customer", task))).toEqual([]);
});

test("one task that fails again and again does not hold up others", () => {
  const { clock, polls } = given();
  for (let nth = 0; nth < 100; nth++) {
    clock.ms += 5000;
    expect(polls.get("customer", "broken")).toBeUndefined();
    polls.record("customer", "broken", failed);
  }
  expect(polls.get("customer", "sound")).toBeUndefined();
});

test("answers in between keep the upstream from being taken as down", () => {
  const { polls } = given();
  for (let nth = 0; nth < 100; nth++)
    polls.record("customer", `task ${nth}`, nth % 9 === 8 ? undefined : failed);
  expect(polls.get("customer", "sound")).toBeUndefined();
});

// Guarantee: what an upstream cannot say of one customer's tasks keeps nobody else from his.
test("tasks of one account that fail, however many, do not hold up another account's", () => {
  const { clock, polls } = given();
  for (let pause = 0; pause < 5; pause++) {
    clock.ms += 5000;
    for (let nth = 0; nth < 20; nth++) {
      if (!polls.get("hostile", `broken ${nth}`)) polls.record("hostile", `broken ${nth}`, failed);
    }
    expect(polls.get("honest", "sound")).toBeUndefined();
  }
  expect(polls.get("hostile", "sound"), "its own wait").toBeDefined();
});
