import { setImmediate as nextTick } from "node:timers/promises";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Deadlines } from "../../../src/redis/deadlines.ts";

/** Only time is faked: a slice ends in a real tick of the event loop, behind what was read in it. */
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

function given() {
  let expired = 0;
  const deadlines = new Deadlines(100);
  deadlines.begin(() => expired++);
  return { deadlines, expired: () => expired };
}

/** The time of so many slices, each on a free event loop. */
async function slices(count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    vi.advanceTimersByTime(10);
    await nextTick();
  }
}

test("on a free event loop a limit is over after its time, and at most a slice more", async () => {
  const { expired } = given();
  await slices(10);
  expect(expired()).toBe(0);
  await slices(1);
  expect(expired()).toBe(1);
});

// Guarantee: a process that stood still for seconds has used up a tenth of each limit, and none has ended.
test("a process that stood still for long has used one slice", async () => {
  const { expired } = given();
  vi.advanceTimersByTime(10_000);
  await nextTick();
  expect(expired()).toBe(0);
  await slices(9);
  expect(expired()).toBe(0);
  await slices(1);
  expect(expired()).toBe(1);
});

// Guarantee: a reply that has arrived is read before its call counts as timed out.
test("a limit never ends in the timer itself, but behind what was pending then", async () => {
  const { expired, deadlines } = given();
  await slices(10);
  vi.advanceTimersByTime(10);
  expect(expired()).toBe(0);
  await nextTick();
  expect(expired()).toBe(1);

  const late = deadlines.begin(() => expect.unreachable("it was ended in time"));
  await slices(10);
  vi.advanceTimersByTime(10);
  deadlines.end(late);
  await nextTick();
});

test("those that end early leave the others in their order", async () => {
  const expired: number[] = [];
  const deadlines = new Deadlines(100);
  const begun = [0, 1, 2, 3, 4].map((n) => deadlines.begin(() => expired.push(n)));
  for (const n of [4, 0, 2, 2]) deadlines.end(begun[n]!);
  deadlines.begin(() => expired.push(5));
  await slices(11);
  expect(expired).toEqual([1, 3, 5]);
  deadlines.end(begun[1]!);
  deadlines.begin(() => expired.push(6));
  await slices(11);
  expect(expired).toEqual([1, 3, 5, 6]);
});
