import { expect, test } from "vitest";
import { createCalls, createStoreClock } from "../../../src/redis/calls.ts";
import { Deadlines } from "../../../src/redis/deadlines.ts";
import { probe } from "../../../src/scripts/gateways.ts";
import { createLogger } from "../../../src/telemetry/log.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";

const UNDER_WAY_MAX = 256;

/** Calls of which as many are under way as may be. `ended` lets the oldest of them end. */
async function givenFull(waitMaxMs = 60_000) {
  const metrics = createMetrics();
  const pending: ((replies: string[][]) => void)[] = [];
  const { queue, run, rejectWaiting } = createCalls({
    redis: {} as Parameters<typeof createCalls>[0]["redis"],
    scripts: { run: () => Promise.reject(), send: () => new Promise((resolve) => pending.push(resolve)) },
    breaker: { isOpen: false, trip: () => undefined },
    deadlines: new Deadlines(waitMaxMs),
    clock: createStoreClock(),
    form: { checksFrozen: false, crossesSlots: false },
    ownerNow: () => Promise.reject(),
    frozen: {
      isEmpty: true,
      has: () => false,
      hasName: () => false,
      refuses: () => false,
      refusesRead: () => undefined,
    },
    log: createLogger("fatal"),
    metrics,
  });
  const begun = (): void => void run(probe, { name: "tg:probe" });
  for (let nth = 0; nth < UNDER_WAY_MAX; nth++) begun();
  return {
    queue,
    begun,
    async ended(): Promise<void> {
      pending.shift()!([["ok", "0"]]);
      await new Promise((resolve) => setImmediate(resolve));
    },
    rejectWaiting,
    waiting: async () => (await metrics.storeWaiting.get()).values[0]!.value,
  };
}

test("owners take turns, each in the order of its own calls", async () => {
  const { queue, begun, ended } = await givenFull();
  const order: string[] = [];
  for (const name of ["a1", "a2", "a3", "b1", "b2"]) {
    void queue.wait(name[0]!).then(() => {
      order.push(name);
      begun();
    });
  }
  for (let nth = 0; nth < 5; nth++) await ended();
  expect(order).toEqual(["a1", "b1", "a2", "b2", "a3"]);
});

// Guarantee: neither one key nor many keys together make the memory for waiting calls grow without a bound.
test("500 calls of one owner may wait, and 10,000 of all", async () => {
  const { queue, ended, rejectWaiting, waiting } = await givenFull();
  const settled: Promise<void>[] = [];
  const wait = (owner: string) => settled.push(queue.wait(owner).catch(() => undefined));
  for (let nth = 0; nth < 500; nth++) wait("first");
  await expect(queue.wait("first")).rejects.toThrow("too many calls of this key");
  for (let owner = 0; owner < 19; owner++) for (let nth = 0; nth < 500; nth++) wait(`key ${owner}`);
  expect(await waiting()).toBe(10_000);
  await expect(queue.wait("another")).rejects.toThrow("too many calls");
  rejectWaiting();
  expect(await waiting()).toBe(0);
  await Promise.all(settled);
  expect(queue.isFull()).toBe(true);
  await ended();
  expect(queue.isFull()).toBe(false);
});

// Guarantee: a request that gets no turn in the time of a command is refused, and takes no place afterwards.
test("who has waited too long is refused", async () => {
  const { queue, ended, waiting } = await givenFull(50);
  await expect(queue.wait("late")).rejects.toThrow("the call waited too long");
  expect(await waiting()).toBe(0);
  await ended();
  expect(queue.isFull()).toBe(false);
});
