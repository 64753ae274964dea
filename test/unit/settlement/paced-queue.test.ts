import { afterEach, expect, test, vi } from "vitest";
import { createPacedQueue } from "../../../src/settlement/sweep-lanes.ts";
import { soon } from "../../support/soon.ts";

/** A queue whose work ends when the test says so. */
function givenQueue(options: { concurrency?: number; perSecond?: number; entriesMax?: number } = {}) {
  const begun: number[] = [];
  const ends = new Map<number, () => void>();
  const queue = createPacedQueue<number>({
    concurrency: options.concurrency ?? 100,
    perSecond: () => options.perSecond ?? 1_000_000,
    entriesMax: options.entriesMax ?? 1000,
    work: (item) => {
      begun.push(item);
      return new Promise((resolve) => ends.set(item, resolve));
    },
  });
  return { queue, begun, end: (item: number) => ends.get(item)?.() };
}

test("no more than the allowed number is under way, and the next begins when one ends", async () => {
  const { queue, begun, end } = givenQueue({ concurrency: 2 });
  for (const item of [1, 2, 3]) queue.add(item);
  await soon(() => expect(begun).toEqual([1, 2]));
  end(1);
  await soon(() => expect(begun).toEqual([1, 2, 3]));
});

test("it says how many more may wait", async () => {
  const { queue, begun, end } = givenQueue({ concurrency: 1, entriesMax: 2 });
  const rooms = [1, 2, 3].map((item) => {
    queue.add(item);
    return queue.room();
  });
  expect(rooms, "the first is under way and waits no more").toEqual([2, 1, 0]);
  end(1);
  await soon(() => expect(begun).toEqual([1, 2]));
  expect(queue.room()).toBe(1);
});

test("work is begun no faster than the rate", () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  try {
    const { queue, begun } = givenQueue({ perSecond: 10 });
    for (let item = 0; item < 100; item++) queue.add(item);
    vi.advanceTimersByTime(60_000);
    // Work not done in the last second may be caught up on; more than that never.
    expect(begun).toHaveLength(100);
    const fresh = givenQueue({ perSecond: 10 });
    fresh.queue.pause(1000);
    for (let item = 0; item < 100; item++) fresh.queue.add(item);
    expect(fresh.begun).toHaveLength(0);
    vi.advanceTimersByTime(3000);
    expect(fresh.begun.length).toBeGreaterThanOrEqual(20);
    expect(fresh.begun.length).toBeLessThanOrEqual(22);
  } finally {
    vi.useRealTimers();
  }
});

/** Begins 50 a second, four at a time, under a clock of the test's. @returns when each began, in ms */
function givenClocked(workMs: number, pauseMs?: number) {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  const startedMs: number[] = [];
  const queue = createPacedQueue<number>({
    concurrency: 4,
    perSecond: () => 50,
    entriesMax: 10_000,
    async work() {
      startedMs.push(performance.now());
      await new Promise((resolve) => setTimeout(resolve, workMs));
      if (pauseMs !== undefined) queue.pause(pauseMs);
    },
  });
  for (let item = 0; item < 5000; item++) queue.add(item);
  return startedMs;
}

// To wake up for each item by itself costs more than the items do; the rate is the same.
test.each([0, 15, 70])("work of %d ms that has to wait begins together, at the full rate", async (workMs) => {
  const startedMs = givenClocked(workMs);
  await vi.advanceTimersByTimeAsync(5000);
  startedMs.length = 0;
  await vi.advanceTimersByTimeAsync(10_000);
  expect(startedMs.length).toBeGreaterThanOrEqual(495);
  expect(startedMs.length).toBeLessThanOrEqual(505);
  if (workMs === 0) expect(new Set(startedMs.map(Math.floor)).size).toBeLessThan(250);
});

// Guarantee: an upstream that fails is asked once after each pause, not by all that waited.
test("what a pause held back is not caught up on", async () => {
  const startedMs = givenClocked(1, 150);
  await vi.advanceTimersByTimeAsync(5000);
  startedMs.length = 0;
  await vi.advanceTimersByTimeAsync(10_000);
  expect(startedMs.length).toBeGreaterThanOrEqual(64);
  expect(startedMs.length).toBeLessThanOrEqual(68);
});

afterEach(() => vi.useRealTimers());

test("idle waits for what waits and what is under way; stop forgets the former only", async () => {
  const { queue, begun, end } = givenQueue({ concurrency: 1 });
  let idle = false;
  queue.add(1);
  queue.add(2);
  const waiting = queue.idle().then(() => {
    idle = true;
  });
  await soon(() => expect(begun).toEqual([1]));
  queue.stop();
  expect(idle).toBe(false);
  end(1);
  await waiting;
  expect(begun).toEqual([1]);
  expect(queue.room()).toBe(0);
});
