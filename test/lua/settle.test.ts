import { setImmediate } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { releaseTask } from "../../src/operations/tasks/operator-tasks.ts";
import { cliActor } from "../../src/records/actor.ts";
import { dueFrom, idempotencyName, keyRef, requestName } from "../../src/records/names.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { memoryJournal } from "../support/memory-journal.ts";
import {
  createStage,
  HOLD_MS,
  NOON_MS,
  openConnection,
  openStore,
  POLL_MS,
  randomId,
  type Stage,
  type TestConnection,
  taskOf,
  times,
} from "../support/store.ts";
import { readCounters } from "../support/stored-records.ts";
import { readRequest } from "../support/stored-requests.ts";
import { until } from "../support/until.ts";

// BIND and VOID: what becomes of a hold.

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

const state = async (key: Parameters<Stage["credits"]>[0]) => {
  const { balance, totalUsed, totalRequests, recent, state } = await stage.account(key);
  return { balance, totalUsed, totalRequests, active: state.active, transactions: recent.length };
};

test("BIND turns the hold into one consume entry and gives the slot to the task", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const generation = stage.request(key, { price: 30 });
  await stage.admit(generation);
  stage.clock.nowMs += 1500;
  expect(await stage.bind(generation)).toBe("bound");
  const { recent, ...account } = await stage.account(key);
  expect(account).toMatchObject({ balance: 70, totalUsed: 30, totalRequests: 1, state: { active: 1 } });
  expect(await stage.held(key)).toBe(0);
  expect(recent[0]).toEqual({
    id: expect.stringMatching(/^txn_\d+_\d+-\d+$/),
    type: "consume",
    amount: -30,
    balance_after: 70,
    endpoint: generation.endpoint,
    created_at: new Date(NOON_MS + 1500).toISOString(),
  });
  expect(await stage.redis.zscore(key.names.due, generation.requestId)).toBe(
    String(dueFrom("polls") + stage.clock.nowMs + POLL_MS),
  );
});

test("BIND again, even after the task's end, charges nothing and changes nothing", async () => {
  const key = await stage.givenKey();
  const generation = stage.request(key);
  await stage.givenTask(generation);
  const bound = await stage.everything();
  expect(await stage.bind(generation)).toBe("bound");
  expect(await stage.everything()).toEqual(bound);
  await stage.observe(generation, "failed");
  const ended = await stage.everything();
  expect(await stage.bind(generation)).toBe("bound");
  expect(await stage.everything()).toEqual(ended);
});

test("BIND charges what was fixed at admission, whatever it says itself", async () => {
  const key = await stage.givenKey();
  const generation = stage.request(key, { price: 10 });
  await stage.admit(generation);
  await stage.bind({ ...generation, price: 900 });
  expect(await state(key)).toMatchObject({ balance: 990, totalUsed: 10 });
  expect(await stage.held(key)).toBe(0);
});

test("BIND with a second task id is a conflict and changes nothing", async () => {
  const generation = stage.request(await stage.givenKey());
  await stage.givenTask(generation);
  const before = await stage.everything();
  expect(await stage.bind(generation, `${taskOf(generation)}2`)).toBe("conflict");
  expect(await stage.everything()).toEqual(before);
});

test("a task id belongs to the first request that got it, over all accounts and partitions", async () => {
  const first = stage.request(await stage.givenKey());
  await stage.givenTask(first);
  const elsewhere = createStage(connection);
  const second = elsewhere.request(await elsewhere.givenKey());
  await elsewhere.admit(second);
  const before = await elsewhere.everything();
  expect(await elsewhere.bind(second, taskOf(first))).toBe("conflict");
  expect(await elsewhere.everything()).toEqual(before);
  // Its outcome is unknown: the hold ends at its due time, and nothing is charged.
  elsewhere.clock.nowMs += HOLD_MS;
  expect(await elsewhere.void(second, "due")).toBe("void");
  expect(await elsewhere.credits(second.key)).toMatchObject({ balance: 1000, totalUsed: 0 });
});

test("a late BIND is charged when the balance allows, and takes its slot above the limit", async () => {
  const key = await stage.givenKey({ credits: 20, max_concurrent: 1 });
  const [late, other] = [stage.request(key), stage.request(key)];
  await stage.admit(late);
  await stage.void(late, "refused");
  await stage.admit(other);
  expect(await stage.bind(late)).toBe("late");
  expect((await stage.credits(key)).state).toMatchObject({ active: 2, concurrentLimit: 1 });
  expect(await state(key)).toMatchObject({ balance: 0, totalUsed: 10, active: 2 });
  expect(await stage.held(key)).toBe(10);
  expect(await stage.bind(late)).toBe("bound");
  expect(await stage.observe(late, "failed")).toMatchObject({ outcome: "finished", refunded: 10 });
  expect(await state(key)).toMatchObject({ balance: 10, totalUsed: 0, active: 1 });
});

test("a late BIND that the balance does not cover is uncollected, and never refunded", async () => {
  const key = await stage.givenKey({ credits: 10 });
  const [late, other] = [stage.request(key), stage.request(key)];
  await stage.admit(late);
  await stage.void(late, "refused");
  await stage.admit(other);
  expect(await stage.bind(late)).toBe("uncollected");
  expect(await stage.bind(late), "sent again since its reply was lost").toBe("uncollected");
  expect(await state(key)).toMatchObject({ balance: 0, totalUsed: 0, active: 2, transactions: 1 });
  expect(await stage.observe(late, "failed")).toMatchObject({ outcome: "finished", refunded: 0 });
  expect(await state(key)).toMatchObject({ balance: 0, totalUsed: 0, active: 1, transactions: 1 });
});

test("an uncollected task is replayed to no repeat with its Idempotency-Key: no video for nothing", async () => {
  const key = await stage.givenKey({ credits: 10 });
  const idempotency = { digest: "d", fingerprint: "f" };
  const [late, repeat] = [1, 2].map(() => stage.request(key, { idempotency }));
  const other = stage.request(key);
  await stage.admit(late!);
  await stage.void(late!, "released");
  await stage.admit(other);
  expect(await stage.bind(late!)).toBe("uncollected");
  expect((await stage.admit(repeat!)).outcome).toBe("insufficient_credits");
  await stage.void(other, "refused");
  expect((await stage.admit(repeat!)).outcome).toBe("admitted");
  expect(await stage.bind(repeat!)).toBe("bound");
  expect(await state(key)).toMatchObject({ balance: 0, totalUsed: 10, transactions: 2 });
});

// A sequence of the model had a digest here that no Idempotency-Key stood behind.
test("a BIND of a request without a record has an Idempotency-Key if it is charged, and none if not", async () => {
  const key = await stage.givenKey({ credits: 30 });
  const names = ["charged", "uncollected"];
  const idempotencies = names.map((name) => ({ digest: `${key.accountId}-${name}`, fingerprint: "f" }));
  const bindings = [];
  for (const idempotency of idempotencies) {
    stage.clock.nowMs++;
    bindings.push(await stage.bind(stage.request(key, { price: 20, idempotency })));
  }
  expect(bindings).toEqual(["late", "uncollected"]);

  stage.clock.nowMs += HOUR_MS;
  const { requests } = await stage.sweeps.lease("polls", key.partition, 100);
  const own = requests.filter(({ accountId }) => accountId === key.accountId);
  expect(own.map(({ idempotencyDigest }) => idempotencyDigest)).toEqual([
    idempotencies[0]!.digest,
    undefined,
  ]);
  const repeats = [];
  for (const idempotency of idempotencies)
    repeats.push((await stage.admit(stage.request(key, { price: 10, idempotency }))).outcome);
  expect(repeats).toEqual(["replayed", "admitted"]);
  expect(await state(key)).toMatchObject({ balance: 0, totalUsed: 20, active: 3, transactions: 2 });
});

test("a BIND whose ADMIT left no record at all is late", async () => {
  const key = await stage.givenKey({ credits: 10 });
  const generation = stage.request(key);
  expect(await stage.bind(generation)).toBe("late");
  expect(await state(key)).toMatchObject({ active: 1 });
  expect((await stage.admit(generation)).outcome).toBe("admitted");
  expect(await state(key)).toMatchObject({ balance: 0, totalUsed: 10, active: 1, transactions: 2 });
});

test("a late BIND over a tombstone stays for good", async () => {
  const key = await stage.givenKey();
  const generation = stage.request(key);
  await stage.void(generation, "unsent");
  await stage.bind(generation);
  expect(await stage.redis.pttl(`tg:{p${stage.partition}}:request:${generation.requestId}`)).toBe(-1);
});

test("a late BIND does not take an Idempotency-Key that another request uses by now", async () => {
  const key = await stage.givenKey();
  const idempotency = { digest: "d", fingerprint: "f" };
  const [first, second, third] = [1, 2, 3].map(() => stage.request(key, { idempotency }));
  await stage.admit(first!);
  await stage.void(first!, "refused");
  await stage.admit(second!);
  expect(await stage.bind(first!)).toBe("uncollected");
  expect(await stage.admit(third!)).toMatchObject({ outcome: "idempotency_in_progress" });
  await stage.bind(second!);
  expect(await stage.admit(third!)).toMatchObject({ outcome: "replayed", taskId: taskOf(second!) });
});

/** A first request whose hold ended without an answer, and a retry of it that is admitted: both with one Idempotency-Key. */
async function givenRetry(reason: "due" | "unsent" = "due") {
  const key = await stage.givenKey({ credits: 100 });
  const idempotency = { digest: randomId("digest"), fingerprint: "f" };
  const [first, retry, third] = times(3, () =>
    stage.request(key, { idempotency, retentionMs: 7 * DAY_MS }),
  ) as [Generation, Generation, Generation];
  await stage.admit(first);
  stage.clock.nowMs += HOLD_MS;
  await stage.void(first, reason);
  expect((await stage.admit(retry)).outcome).toBe("admitted");
  const record = idempotencyName(stage.partition, idempotency.digest);
  return { key, first, retry, third, record };
}

// The first one's BIND once waited in the journal of a gateway that had died, while the customer's retry was charged.
test.each(["held", "bound", "finished"])(
  "one Idempotency-Key is charged once: a BIND that comes when its retry is %s is uncollected",
  async (retryIs) => {
    const { key, first, retry, third } = await givenRetry();
    if (retryIs !== "held") await stage.bind(retry);
    if (retryIs === "finished") await stage.observe(retry, "completed");
    expect(await stage.bind(first)).toBe("uncollected");
    if (retryIs === "held") expect(await stage.bind(retry)).toBe("bound");
    expect(await state(key)).toMatchObject({ balance: 90, totalUsed: 10 });
    expect(await stage.held(key)).toBe(0);
    expect(await stage.admit(third)).toMatchObject({ outcome: "replayed", taskId: taskOf(retry) });
    expect(await stage.observe(first, "failed")).toMatchObject({ outcome: "finished", refunded: 0 });
  },
);

test("a BIND whose retry was void before it is charged, and its Idempotency-Key is its own again", async () => {
  const { key, first, retry, third } = await givenRetry();
  await stage.void(retry, "refused");
  expect(await stage.bind(first)).toBe("late");
  expect(await state(key)).toMatchObject({ balance: 90, totalUsed: 10 });
  expect(await stage.admit(third)).toMatchObject({ outcome: "replayed", taskId: taskOf(first) });
});

// The key's record lives for a day; a journal may come back after three.
test("a charged Idempotency-Key is remembered until no earlier request with it can be bound any more", async () => {
  const { first, retry, record } = await givenRetry();
  await stage.bind(retry);
  expect(await stage.redis.pttl(record)).toBeGreaterThan(7 * DAY_MS - 60_000);
  expect(await stage.bind(first)).toBe("uncollected");
});

test("that is remembered over retries that were refused, and over a release by an operator", async () => {
  const { first, retry, third, record } = await givenRetry();
  await stage.void(retry, "refused");
  expect((await stage.admit(third)).outcome).toBe("admitted");
  await stage.bind(third);
  expect(await stage.redis.pttl(record)).toBeGreaterThan(7 * DAY_MS - 60_000);
  expect(await stage.bind(first)).toBe("uncollected");

  const released = await givenRetry("unsent");
  expect(await stage.redis.hget(released.record, "void_until")).toBe(null);
  await stage.void(released.retry, "released");
  expect(await stage.redis.hget(released.record, "void_until")).toBe(String(stage.clock.nowMs + 7 * DAY_MS));
});

test("an Idempotency-Key whose first request was refused is forgotten after a day, as any other", async () => {
  const key = await stage.givenKey();
  const idempotency = { digest: "d", fingerprint: "f" };
  const [refused, retry] = times(2, () => stage.request(key, { idempotency, retentionMs: 7 * DAY_MS }));
  const record = idempotencyName(stage.partition, idempotency.digest);
  await stage.admit(refused!);
  await stage.void(refused!, "refused");
  expect(await stage.redis.exists(record)).toBe(0);
  await stage.admit(retry!);
  await stage.bind(retry!);
  expect(await stage.redis.pttl(record)).toBeLessThanOrEqual(DAY_MS);
});

test("a repeat is told that the first request's outcome is unknown, until its hold has ended", async () => {
  const key = await stage.givenKey();
  const idempotency = { digest: "d", fingerprint: "f" };
  const [first, repeat] = times(2, () => stage.request(key, { idempotency }));
  await stage.admit(first!);
  expect(await stage.admit(repeat!)).not.toHaveProperty("unknown");
  stage.clock.nowMs += 1000;
  await stage.store.noteUnknown(first!, "timed_out", 20);
  expect(await stage.admit(repeat!)).toMatchObject({
    outcome: "idempotency_in_progress",
    unknown: "timed_out",
    dueAtMs: NOON_MS + HOLD_MS,
    retryAfterMs: HOLD_MS - 1000,
  });
  stage.clock.nowMs += HOLD_MS;
  await stage.void(first!, "due");
  await stage.store.noteUnknown(first!, "unclear", 20);
  expect((await stage.admit(repeat!)).outcome).toBe("admitted");
  expect(await stage.admit(stage.request(key, { idempotency }))).not.toHaveProperty("unknown");
});

test.each([
  ["on the day of its admission", 0, "1"],
  ["on another day", 12 * HOUR_MS, "0"],
])("a late BIND %s counts towards that day", async (_, afterMs, counted) => {
  const key = await stage.givenKey({ daily_limit: 1 });
  const [late, other] = [stage.request(key), stage.request(key)];
  await stage.admit(late);
  await stage.void(late, "refused");
  stage.clock.nowMs += afterMs;
  if (afterMs > 0) {
    await stage.admit(other);
    await stage.void(other, "refused");
  }
  expect(await stage.bind(late)).toBe("late");
  expect(await stage.bind(late)).toBe("bound");
  expect((await readCounters(stage.redis, key.names.key)).day_count).toBe(counted);
  const { outcome } = await stage.admit(stage.request(key));
  expect(outcome).toBe(afterMs > 0 ? "admitted" : "daily_limited");
});

test("VOID gives back hold, slot and the day's count; the window entry and the request's count stay", async () => {
  const key = await stage.givenKey({ rate_limit: 5, daily_limit: 1 });
  const generation = stage.request(key);
  await stage.admit(generation);
  await stage.void(generation, "refused");
  const { state: limits, ...account } = await stage.account(key);
  expect(limits).toMatchObject({ remaining: 4, active: 0 });
  expect(account).toMatchObject({ balance: 1000, totalUsed: 0, totalRequests: 1 });
  expect((await readCounters(stage.redis, key.names.key)).day_count).toBe("0");
  expect(await stage.redis.zscore(key.names.due, generation.requestId)).toBeNull();
  const before = await stage.everything();
  stage.clock.nowMs += HOLD_MS;
  for (const reason of ["refused", "due"] as const) expect(await stage.void(generation, reason)).toBe("void");
  expect(await stage.everything()).toEqual(before);
});

test("VOID unsent also takes back the window entry and the request's count", async () => {
  const key = await stage.givenKey({ rate_limit: 5 });
  const [kept, unsent] = [stage.request(key), stage.request(key)];
  await stage.admit(kept);
  await stage.admit(unsent);
  expect(await stage.void(unsent, "unsent")).toBe("void");
  const once = await stage.everything();
  expect(await stage.void(unsent, "unsent")).toBe("void");
  expect(await stage.everything()).toEqual(once);
  expect(await stage.credits(key)).toMatchObject({ state: { remaining: 4, active: 1 }, totalRequests: 1 });
});

// The sweeper of another gateway once came first, and the request that was never sent stayed counted.
test("VOID unsent after VOID due has the effect of either order", async () => {
  const key = await stage.givenKey();
  const generation = stage.request(key);
  await stage.admit(generation);
  stage.clock.nowMs += HOLD_MS;
  await stage.void(generation, "due");
  await stage.void(generation, "unsent");
  await stage.void(generation, "unsent");
  expect(await state(key)).toMatchObject({ balance: 1000, totalRequests: 0, active: 0 });
  expect(await stage.redis.llen(key.names.window)).toBe(0);
});

test("VOID unsent before its ADMIT leaves a tombstone that expires", async () => {
  const key = await stage.givenKey();
  const generation = stage.request(key);
  const call = await stage.onItsWay(() => stage.admit(generation));
  expect(await stage.void(generation, "unsent")).toBe("missing");
  expect((await stage.arrive(call))[0]).toBe("void");
  expect(await state(key)).toMatchObject({ balance: 1000, totalRequests: 0, active: 0 });
  const lifetimeMs = await stage.redis.pttl(`tg:{p${stage.partition}}:request:${generation.requestId}`);
  expect(lifetimeMs).toBeGreaterThan(3_500_000);
});

test.each(["refused", "due"] as const)(
  "VOID %s of a request that nobody knows writes nothing",
  async (reason) => {
    const generation = stage.request(await stage.givenKey());
    const before = await stage.everything();
    expect(await stage.void(generation, reason)).toBe("missing");
    expect(await stage.everything()).toEqual(before);
  },
);

test("VOID due before the due time changes nothing", async () => {
  const generation = stage.request(await stage.givenKey());
  await stage.admit(generation);
  stage.clock.nowMs += HOLD_MS - 1;
  const before = await stage.everything();
  expect(await stage.void(generation, "due")).toBe("not_due");
  expect(await stage.everything()).toEqual(before);
  stage.clock.nowMs += 1;
  expect(await stage.void(generation, "due")).toBe("void");
});

test.each(["refused", "due", "unsent"] as const)(
  "VOID %s of a charged request changes nothing",
  async (reason) => {
    const generation = stage.request(await stage.givenKey());
    await stage.givenTask(generation);
    stage.clock.nowMs += HOLD_MS;
    for (const status of ["pending", "failed"] as const) {
      await stage.observe(generation, status);
      const before = await stage.everything();
      expect(await stage.void(generation, reason)).toBe("bound");
      expect(await stage.everything()).toEqual(before);
    }
  },
);

test("a hold of yesterday that is taken back leaves today's count alone", async () => {
  const key = await stage.givenKey();
  const yesterday = stage.request(key);
  await stage.admit(yesterday);
  stage.clock.nowMs += 12 * 3_600_000;
  await stage.admit(stage.request(key));
  await stage.void(yesterday, "refused");
  expect((await readCounters(stage.redis, key.names.key)).day_count).toBe("1");
});

test("settlements that the store could not answer are kept whole, and work later", async () => {
  const key = await stage.givenKey();
  const [sent, unsent] = [stage.request(key), stage.request(key)];
  await stage.admit(sent);
  const { deferred: binding } = await stage.unsent(() => stage.bind(sent));
  const { calls, deferred: taking } = await stage.unsent(() => stage.admit(unsent));
  stage.clock.nowMs += 1000;
  expect((await stage.arrive(calls[0]!))[0]).toBe("admitted");
  expect(await stage.settle(taking!)).toBe("void");
  expect(await stage.settle(binding!)).toBe("bound");
  expect(await state(key)).toMatchObject({ balance: 990, totalUsed: 10, totalRequests: 1, active: 1 });
});

// Guarantee: a callback may still charge what an operator released, and its Idempotency-Key serves the next try.
test("a hold that an operator releases is void as released, and frees its Idempotency-Key", async () => {
  const own = createStage(connection, { partition: 5 });
  const key = await own.givenKey();
  const idempotency = { digest: randomId("digest"), fingerprint: "same" };
  const held = own.request(key, { idempotency });
  await own.admit(held);
  const released = await releaseTask(oneNode(own.redis), held.requestId, cliActor());
  expect(released).toEqual({ outcome: "voided", credits: held.price });
  const record = await readRequest(own.redis, requestName(5, held.requestId));
  expect(record).toMatchObject({ state: "void", reason: "released" });
  expect(await own.admit(own.request(key, { idempotency }))).toMatchObject({ outcome: "admitted" });
});

test("a settlement that is deferred is on disk before its request goes on, and opens its primary's breaker", async () => {
  const own = await openConnection();
  const onDisk = Promise.withResolvers<void>();
  const journal = { ...memoryJournal, append: () => onDisk.promise };
  const { settlements } = openStore(own, { journal });
  const key = keyRef(randomId("key"), randomId("acc"), 5);
  const call = { key, requestId: randomId("req"), reason: "unsent" } as const;
  const goesOn = vi.fn();
  const ended = settlements
    .defer({ script: "void", storeId: own.known.facts?.id, atMs: own.nowMs(), call })
    .then(goesOn);
  expect(own.breaker.isOpen).toBe(true);
  await setImmediate();
  expect(goesOn).not.toHaveBeenCalled();
  onDisk.resolve();
  await ended;
  await until(() => !own.breaker.isOpen);
  expect(settlements.outbox.size()).toBe(0);
  await settlements.close();
  own.close();
});
