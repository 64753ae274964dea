import { expect, test } from "vitest";
import { createDeadlines } from "../../../src/redis/deadlines.ts";
import { createFairQueue } from "../../../src/redis/fair-queue.ts";

const UNDER_WAY_MAX = 256;

/** A queue with as many calls under way as may be. */
function givenFull() {
  let waiting = 0;
  const queue = createFairQueue({
    deadlines: createDeadlines(60_000),
    refused: (why) => new Error(why),
    changed: (count) => {
      waiting = count;
    },
  });
  for (let nth = 0; nth < UNDER_WAY_MAX; nth++) queue.begun();
  return { queue, waiting: () => waiting };
}

test("owners take turns, each in the order of its own calls", async () => {
  const { queue } = givenFull();
  const order: string[] = [];
  for (const name of ["a1", "a2", "a3", "b1", "b2"]) {
    void queue.wait(name[0]!).then(() => {
      order.push(name);
      queue.begun();
    });
  }
  for (let nth = 0; nth < 5; nth++) {
    queue.ended(1);
    await undefined;
  }
  await new Promise((resolve) => setImmediate(resolve));
  expect(order).toEqual(["a1", "b1", "a2", "b2", "a3"]);
});

// Guarantee: neither one key nor many keys together make the memory for waiting calls grow without a bound.
test("500 calls of one owner may wait, and 10,000 of all", async () => {
  const { queue, waiting } = givenFull();
  const settled: Promise<void>[] = [];
  const wait = (owner: string) => settled.push(queue.wait(owner).catch(() => undefined));
  for (let nth = 0; nth < 500; nth++) wait("first");
  await expect(queue.wait("first")).rejects.toThrow("too many calls of this key");
  for (let owner = 0; owner < 19; owner++) for (let nth = 0; nth < 500; nth++) wait(`key ${owner}`);
  expect(waiting()).toBe(10_000);
  await expect(queue.wait("another")).rejects.toThrow("too many calls");
  queue.rejectAll(() => new Error("the store is away"));
  expect(waiting()).toBe(0);
  await Promise.all(settled);
  expect(queue.isFull()).toBe(true);
  queue.ended(1);
  expect(queue.isFull()).toBe(false);
});
