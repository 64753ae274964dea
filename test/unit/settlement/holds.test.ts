import { setImmediate } from "node:timers/promises";
import { expect, test, vi } from "vitest";
import { keyRef } from "../../../src/records/names.ts";
import type { Primary } from "../../../src/redis/primary.ts";
import type { Binding, Generation } from "../../../src/scripts/holds.ts";
import { createHolds, type Holds } from "../../../src/settlement/holds.ts";
import { createMetrics } from "../../../src/telemetry/metrics.ts";
import { ENDPOINT, newTask, TIERS } from "../../support/store.ts";

const FACTS = { id: "store", partitions: 64, cluster: false };
const GENERATION: Generation = {
  requestId: "req",
  key: keyRef("key", "acc", 5),
  price: 10,
  endpoint: ENDPOINT,
  holdMs: 60_000,
  retentionMs: 60_000,
  storeId: FACTS.id,
};

/** Holds at primaries that do as told. */
function givenHolds(of: () => Primary) {
  const settlements = {
    defer: vi.fn<() => Promise<void>>(async () => undefined),
    charged: vi.fn(),
    voided: vi.fn(),
    confirm: vi.fn(async () => undefined),
  };
  const metrics = createMetrics();
  const connection = { of, ofName: of, metrics, known: { facts: FACTS }, commandTimeoutMs: 500 };
  return { ...settlements, holds: createHolds(connection, settlements) };
}

const primaryThat = (run: () => Promise<unknown>): Primary =>
  ({
    nowMs: () => 0,
    queue: { isFull: () => false },
    requireUsable: () => undefined,
    run,
  }) as unknown as Primary;

// Guarantee: an answered charge is on replicas of the primary that has it.
test("a charge that another primary has answered, since its partition has moved, is confirmed there", async () => {
  const owner = { nowMs: () => 0 } as Primary;
  let current = owner;
  const former = primaryThat(async () => {
    current = owner;
    return "bound";
  });
  current = former;
  const { holds, confirm } = givenHolds(() => current);
  expect(await holds.bind(GENERATION, newTask("task"))).toBe("bound");
  expect(confirm).toHaveBeenCalledExactlyOnceWith(expect.anything(), owner);
});

test.each<[Binding, times: number]>([
  ["bound", 1],
  ["late", 1],
  ["uncollected", 1],
  ["conflict", 0],
  ["forgotten", 0],
])("of a BIND that answers %s, %d charge is confirmed", async (outcome, times) => {
  const { holds, confirm } = givenHolds(() => primaryThat(async () => outcome));
  expect(await holds.bind(GENERATION, newTask("task"))).toBe(outcome);
  expect(confirm).toHaveBeenCalledTimes(times);
});

// Guarantee: a crash right after an answer loses nothing that the answer rests on.
test.each<[string, (holds: Holds) => Promise<unknown>]>([
  ["a charge", (holds) => holds.bind(GENERATION, newTask("task"))],
  ["a VOID", (holds) => holds.voidHold(GENERATION, TIERS)],
  ["the VOID of an ADMIT", (holds) => holds.admit(GENERATION, TIERS).catch(() => undefined)],
])("%s that the store has not answered is on disk before its request goes on", async (_, work) => {
  const onDisk = Promise.withResolvers<void>();
  const { holds, defer } = givenHolds(() => primaryThat(() => Promise.reject(new Error("away"))));
  defer.mockReturnValue(onDisk.promise);
  const goesOn = vi.fn();
  const ended = work(holds).then(goesOn);
  await vi.waitFor(() => expect(defer).toHaveBeenCalledOnce());
  await setImmediate();
  expect(goesOn).not.toHaveBeenCalled();
  onDisk.resolve();
  await ended;
});

// Guarantee: no other store than the one that admitted a request settles it.
test.each<[string, (holds: Holds, generation: Generation) => Promise<unknown>]>([
  ["charge", (holds, generation) => holds.bind(generation, newTask("task"))],
  ["VOID", (holds, generation) => holds.voidHold(generation, TIERS)],
])("a %s of another store's request waits, and one of a store without an id is sent", async (_, work) => {
  const run = vi.fn(async () => ({ outcome: "void", state: undefined }));
  const { holds, defer } = givenHolds(() => primaryThat(run));
  await work(holds, { ...GENERATION, storeId: "another" });
  expect(run).not.toHaveBeenCalled();
  expect(defer).toHaveBeenCalledOnce();
  await work(holds, { ...GENERATION, storeId: undefined });
  expect(run).toHaveBeenCalledOnce();
  expect(defer).toHaveBeenCalledOnce();
});

test("an ADMIT that the store has refused leaves nothing to void", async () => {
  const full = Object.assign(new Error("OOM command not allowed"), { name: "ReplyError" });
  const failure = new Error("refused", { cause: full });
  const { holds, defer } = givenHolds(() => primaryThat(() => Promise.reject(failure)));
  await expect(holds.admit({ ...GENERATION }, TIERS)).rejects.toBe(failure);
  expect(defer).not.toHaveBeenCalled();
});

test("a stale ADMIT is sent once more, and an admitted request knows its store and when it was admitted", async () => {
  const state = { limit: 10, remaining: 9, active: 1, concurrentLimit: 3 };
  const admitted = { outcome: "admitted", tier: "standard", state, admittedAtMs: 7 };
  const run = vi
    .fn<() => Promise<unknown>>(async () => ({ outcome: "stale", tier: "standard" }))
    .mockResolvedValueOnce({ outcome: "stale", tier: "standard" })
    .mockResolvedValueOnce(admitted)
    .mockResolvedValueOnce(admitted);
  const { holds } = givenHolds(() => primaryThat(run));
  const generation: Generation = { ...GENERATION, storeId: undefined };
  expect(await holds.admit(generation, TIERS)).toMatchObject({ outcome: "admitted" });
  expect(generation).toMatchObject({ storeId: FACTS.id, admittedAtMs: 7 });
  await holds.admit({ ...GENERATION }, TIERS);
  expect(run).toHaveBeenCalledTimes(3);
  expect(await holds.admit({ ...GENERATION }, TIERS)).toMatchObject({ outcome: "stale" });
  expect(run).toHaveBeenCalledTimes(5);
});
