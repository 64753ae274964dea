import { afterAll, beforeAll, beforeEach, expect, inject, test } from "vitest";
import { dueFrom, partitionNames, requestName, taskName } from "../../src/records/names.ts";
import { createScriptRunner, itemOf } from "../../src/redis/script-runner.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { collect } from "../../src/scripts/tasks.ts";
import { Sweeper } from "../../src/settlement/sweeper.ts";
import { createSweeps } from "../../src/settlement/sweeps.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics, type Metrics } from "../../src/telemetry/metrics.ts";
import { createClient } from "../support/client.ts";
import {
  createStage,
  HOLD_MS,
  MAX_AGE_MS,
  openConnection,
  RETENTION_MS,
  type Stage,
  type TestConnection,
  taskOf,
  times,
  UPSTREAM,
} from "../support/store.ts";
import { changeRequest } from "../support/stored-requests.ts";
import { plantForTest } from "./mutant-client.ts";
import { COLLECT_MUTANTS, inShare } from "./mutants.ts";

// LEASE and COLLECT: what the sweeper asks of the store.

const LEASE_MS = 90_000;
const HOUR_MS = 3_600_000;
const TASKS = {
  refundFailed: true,
  maxAgeMs: 2 * HOUR_MS,
  sweepIntervalMs: 1000,
  pollIntervalMs: 10_000,
  sweepPollsPerSecond: 50,
  retentionMs: 7 * 24 * HOUR_MS,
};

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

const leased = async (most = 100): Promise<string[]> =>
  (await stage.sweeps.lease("holds", stage.partition, most)).requests.map(({ requestId }) => requestId);
const idsOf = (generations: readonly Generation[]) => generations.map(({ requestId }) => requestId).sort();

test("a lease takes what is due, once within its lease, and again after it", async () => {
  const key = await stage.givenKey();
  const holds = times(4, () => stage.request(key));
  await Promise.all(holds.map(stage.admit));
  stage.clock.nowMs += HOLD_MS - 1;
  expect(await leased()).toEqual([]);
  stage.clock.nowMs += 1;
  const [some, rest] = [await leased(3), await leased(3)];
  expect([some.length, rest.length, await leased()]).toEqual([3, 1, []]);
  expect([...some, ...rest].sort()).toEqual(idsOf(holds));
  stage.clock.nowMs += LEASE_MS - 1;
  expect(await leased()).toEqual([]);
  stage.clock.nowMs += 1;
  expect((await leased()).sort()).toEqual(idsOf(holds));
});

test("which list of which partition has something due is seen, to the ms, and nothing else", async () => {
  // A database of its own: stages have partitions that no sweep looks at, and gateways sweep those that it does.
  const alone = await openConnection(`${inject("redisUrl")}/9`);
  const lists = [partitionNames(7).due, partitionNames(63).due];
  try {
    await alone.redis.zadd(lists[0]!, 1000, "req_a", 5000, "req_b");
    await alone.redis.zadd(lists[1]!, dueFrom("polls") + 1001, "req_a", dueFrom("polls") + 5000, "req_b");
    const dueAt = (nowMs?: number) =>
      createSweeps(alone, () => LEASE_MS, nowMs === undefined ? undefined : () => nowMs).due();
    const [none, seventh, last] = [new Set(), new Set([7]), new Set([63])];
    expect(await dueAt(999)).toEqual({ holds: none, polls: none });
    expect(await dueAt(1000)).toEqual({ holds: seventh, polls: none });
    expect(await dueAt(1001)).toEqual({ holds: seventh, polls: last });
    expect(await dueAt()).toEqual({ holds: seventh, polls: last });
  } finally {
    await alone.redis.del(...lists);
    await alone.close();
  }
});

test("simultaneous leases never take the same", async () => {
  const key = await stage.givenKey();
  const holds = times(40, () => stage.request(key));
  await Promise.all(holds.map(stage.admit));
  stage.clock.nowMs += HOLD_MS;
  const taken = await Promise.all(times(8, () => leased(7)));
  expect(taken.flat().sort()).toEqual(idsOf(holds));
});

test("a lease tells a hold from a task, with all that ending it needs", async () => {
  const key = await stage.givenKey();
  const hold = stage.request(key, { idempotency: { digest: "d", fingerprint: "f" } });
  const task = stage.request(key);
  await stage.admit(hold);
  await stage.givenTask(task);
  const boundAtMs = stage.clock.nowMs;
  stage.clock.nowMs += HOLD_MS;
  const leases = await Promise.all([
    stage.sweeps.lease("holds", stage.partition, 10),
    stage.sweeps.lease("polls", stage.partition, 10),
  ]);
  expect(leases.map(({ requests }) => requests.map(({ state }) => state))).toEqual([["held"], ["bound"]]);
  const requests = leases.flatMap((lease) => lease.requests);
  const common = { partition: stage.partition, accountId: key.accountId, creatorKeyId: key.keyId };
  const found = (generation: Generation) => requests.find((one) => one.requestId === generation.requestId);
  expect(found(hold)).toMatchObject({ ...common, state: "held", idempotencyDigest: "d", taskId: "" });
  expect(found(hold)).toMatchObject({ maxAgeMs: undefined, upstream: undefined });
  expect(found(task)).toMatchObject({ ...common, state: "bound", taskId: taskOf(task), boundAtMs });
  expect(found(task)).toMatchObject({ maxAgeMs: MAX_AGE_MS, upstream: UPSTREAM });
  expect(requests.map(({ leasedAtMs }) => leasedAtMs)).toEqual([stage.clock.nowMs, stage.clock.nowMs]);

  expect(await stage.sweeps.voidDue(found(hold)!)).toBe("void");
  const again = stage.request(key, { idempotency: { digest: "d", fingerprint: "another" } });
  expect(await stage.admit(again)).toMatchObject({ outcome: "admitted" });
  // The lease is no new due time: what it leased may still be bound, and then it is no hold any more.
  expect(await stage.sweeps.voidDue(found(task)!)).toBe("bound");
});

test.each(["holds", "polls"] as const)(
  "a lease of %s drops an entry whose request has ended",
  async (list) => {
    const name = partitionNames(stage.partition).due;
    await stage.redis.zadd(name, dueFrom(list), "req_ended");
    expect(await stage.sweeps.lease(list, stage.partition, 10)).toEqual({ leased: 1, requests: [] });
    expect(await stage.redis.zcard(name)).toBe(0);
  },
);

// Guarantee: Redis TIME alone decides. A clock that was ahead and was put back refunds no task that is seconds old.
test.each([
  [3 * HOUR_MS, 0, "observed"],
  [-3 * HOUR_MS, 0, "observed"],
  [-3 * HOUR_MS, 3 * HOUR_MS, "finished"],
])(
  "to a gateway whose idea of the time is %d ms off, a task %d ms old is %s",
  async (offMs, ageMs, outcome) => {
    const stage = createStage(connection, { clock: "redis" });
    const task = stage.request(await stage.givenKey());
    await stage.givenTask(task);
    const record = requestName(stage.partition, task.requestId);
    await changeRequest(stage.redis, record, { bound_at: (atMs) => atMs - ageMs });
    await stage.redis.zadd(task.key.names.due, dueFrom("polls"), task.requestId);
    const metrics = createMetrics();
    await sweeperOf(stage, { nowMs: () => Date.now() + offMs, metrics }).sweep();
    expect((await metrics.sweeps.get()).values.map(({ labels }) => labels)).toEqual([
      { kind: "task", outcome },
    ]);
    expect(await stage.requestRecord(task)).toMatchObject({
      state: outcome === "observed" ? "bound" : "finished",
    });
    // Asked for again as rarely as its age allows, by the same clock.
    const score = Number(await stage.redis.zscore(task.key.names.due, task.requestId));
    const nextAtMs = score - dueFrom("polls");
    expect(nextAtMs).toBeLessThan(Date.now() + 1.1 * TASKS.pollIntervalMs);
  },
);

// One gateway with `max_age: 1s` once ended and refunded what others had made with 2 h.
test.each([
  ["its own", HOUR_MS, "finished"],
  ["its own", 3 * HOUR_MS, "observed"],
  ["none, as one that was restored", undefined, "finished"],
])("a task is as old as it may be by %s maximum age: %s ms, %s", async (_, maxAgeMs, outcome) => {
  const stage = createStage(connection, { clock: "redis" });
  const task = stage.request(await stage.givenKey());
  await stage.givenTask(task, taskOf(task), { maxAgeMs: maxAgeMs ?? 3 * HOUR_MS });
  const record = requestName(stage.partition, task.requestId);
  if (maxAgeMs === undefined)
    await changeRequest(stage.redis, record, { max_age_ms: undefined, upstream: undefined });
  await changeRequest(stage.redis, record, { bound_at: (atMs) => atMs - 2 * HOUR_MS });
  await stage.redis.zadd(task.key.names.due, dueFrom("polls"), task.requestId);
  const metrics = createMetrics();
  await sweeperOf(stage, { nowMs: Date.now, metrics }).sweep();
  expect((await metrics.sweeps.get()).values.map(({ labels }) => labels)).toEqual([
    { kind: "task", outcome },
  ]);
});

test("a poll finds the maximum age and the upstream that BIND fixed; those of a restored task are not known", async () => {
  const task = stage.request(await stage.givenKey());
  await stage.givenTask(task);
  const inspected = async () => {
    const found = await stage.store.inspectTask(task.key, taskOf(task), 5000, stage.tiers);
    if (found.outcome !== "task") throw new Error(found.outcome);
    const { maxAgeMs, upstream, fresh } = found.task;
    return { maxAgeMs, upstream, fresh };
  };
  expect(await inspected()).toEqual({ maxAgeMs: MAX_AGE_MS, upstream: UPSTREAM, fresh: false });
  await changeRequest(stage.redis, requestName(stage.partition, task.requestId), {
    max_age_ms: undefined,
    upstream: undefined,
  });
  expect(await inspected()).toEqual({ maxAgeMs: undefined, upstream: undefined, fresh: false });
});

/** A sweeper for the stage's partition alone, of a gateway that believes in some time; every task is processing. */
function sweeperOf(stage: Stage, { nowMs, metrics }: { nowMs(): number; metrics: Metrics }) {
  const sweeps = createSweeps({ ...connection, nowMs }, () => LEASE_MS);
  return new Sweeper({
    store: stage.store,
    sweeps: {
      ...sweeps,
      partitions: () => 1,
      due: async () => ({ holds: new Set(), polls: new Set([0]) }),
      lease: (list, _, most) => sweeps.lease(list, stage.partition, most),
      collect: async () => ({ looked: 0, collected: 0 }),
    },
    upstreamOf: () => ({
      tag: "present",
      poll: async () => ({ outcome: "task", status: "processing", data: "{}" }),
    }),
    metrics,
    log: createLogger("silent"),
    settings: () => ({ tiers: stage.tiers, tasks: TASKS }),
  });
}

test("what ended is forgotten after its retention, the ledger is kept, and its task id is free", async () => {
  const key = await stage.givenKey();
  const [task, refused, open] = times(3, () => stage.request(key));
  await stage.givenTask(task!);
  await stage.observe(task!, "completed");
  await stage.admit(refused!);
  await stage.void(refused!, "refused");
  await stage.admit(open!);
  const before = await stage.credits(key);
  const none = { looked: 0, collected: 0 };
  stage.clock.nowMs += RETENTION_MS - 1;
  expect(await stage.sweeps.collect(stage.partition, 0, 10)).toEqual(none);
  stage.clock.nowMs += 1;
  expect(await stage.sweeps.collect(stage.partition, 0, 10)).toEqual({ looked: 2, collected: 2 });
  expect(await stage.sweeps.collect(stage.partition, 0, 10)).toEqual(none);
  const after = await stage.credits(key);
  expect({ ...after, atMs: 0 }).toEqual({ ...before, atMs: 0 });
  for (const gone of [task!, refused!]) expect(await stage.requestRecord(gone)).toEqual({});
  expect(await stage.store.inspectTask(key, taskOf(task!), 5000, stage.tiers)).toMatchObject({
    outcome: "not_found",
  });
  expect(await stage.redis.exists(taskName(taskOf(task!), stage.partition))).toBe(0);
  expect(await stage.requestRecord(open!)).toMatchObject({ state: "held" });
});

// One gateway with `retention: 1h` once collected what another with 7 days still owed the store a BIND for.
test("a gateway with a shorter retention forgets no request early, so a BIND sent again charges nothing", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const generation = stage.request(key, { retentionMs: 7 * 24 * HOUR_MS });
  const binding = await stage.onItsWay(() => stage.bind(generation));
  await stage.admit(generation);
  expect((await stage.arrive(binding))[0]).toBe("bound");
  await stage.observe(generation, "completed");
  stage.clock.nowMs += 3 * 24 * HOUR_MS;
  expect(await collectedEarly(stage, generation)).toEqual({ looked: 1, collected: 0 });
  expect((await stage.arrive(binding))[0]).toBe("bound");
  expect(await stage.credits(key)).toMatchObject({ balance: 90, totalUsed: 10, state: { active: 0 } });
});

/** Something brings COLLECT, of a gateway with a retention of a second, to a request before its own retention has passed. */
async function collectedEarly({ redis, partition, sweeps }: Stage, { requestId }: Generation) {
  await redis.zadd(partitionNames(partition).done, 0, requestId);
  return sweeps.collect(partition, 1000, 10);
}

test.each(inShare(COLLECT_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  const client = createClient(inject("redisUrl"), 10_000);
  try {
    await client.connect();
    const own = createStage(connection, { scripts: createScriptRunner(client, { folder }) });
    const generation = own.request(await own.givenKey(), { retentionMs: HOUR_MS });
    await own.givenTask(generation);
    await own.observe(generation, "completed");
    own.clock.nowMs += HOUR_MS / 2;
    expect(await collectedEarly(own, generation)).toEqual({ looked: 1, collected: 1 });
  } finally {
    client.disconnect();
  }
});

test("a void request keeps the retention of its admission, also when another gateway voids it", async () => {
  const generation = stage.request(await stage.givenKey(), { retentionMs: HOUR_MS });
  await stage.admit(generation);
  stage.clock.nowMs += HOLD_MS;
  await stage.void(generation, "due");
  const { done } = partitionNames(stage.partition);
  expect(await stage.redis.zscore(done, generation.requestId)).toBe(String(stage.clock.nowMs + HOUR_MS));
  // Bound late by a gateway with another configuration, it keeps that of its admission, too.
  await stage.bind({ ...generation, retentionMs: 1 });
  expect(await stage.requestRecord(generation)).toMatchObject({ retention_ms: String(HOUR_MS) });
});

test("a request that the store had forgotten is kept for the retention of its BIND", async () => {
  const generation = stage.request(await stage.givenKey(), { retentionMs: HOUR_MS });
  expect(await stage.bind(generation)).toBe("late");
  await stage.observe(generation, "completed");
  stage.clock.nowMs += HOUR_MS - 1;
  expect(await stage.sweeps.collect(stage.partition, 1, 10)).toEqual({ looked: 0, collected: 0 });
  stage.clock.nowMs += 1;
  expect(await stage.sweeps.collect(stage.partition, 1, 10)).toEqual({ looked: 1, collected: 1 });
});

// Restored records have no retention.
test("a restored request is kept for the collecting gateway's retention, and looked at once", async () => {
  const request = stage.request(await stage.givenKey());
  await stage.givenTask(request);
  await stage.observe(request, "completed");
  const { done } = partitionNames(stage.partition);
  await changeRequest(stage.redis, requestName(stage.partition, request.requestId), {
    retention_ms: undefined,
  });
  await stage.redis.zadd(done, stage.clock.nowMs, request.requestId);
  expect(await stage.sweeps.collect(stage.partition, HOUR_MS, 10)).toEqual({ looked: 1, collected: 0 });
  expect(await stage.redis.zscore(done, request.requestId)).toBe(String(stage.clock.nowMs + HOUR_MS));
  stage.clock.nowMs += HOUR_MS - 1;
  expect(await stage.sweeps.collect(stage.partition, HOUR_MS, 10)).toEqual({ looked: 0, collected: 0 });
  stage.clock.nowMs += 1;
  expect(await stage.sweeps.collect(stage.partition, HOUR_MS, 10)).toEqual({ looked: 1, collected: 1 });
});

test("what is listed among the ended though it is open does not stand in the way of others for ever", async () => {
  const open = stage.request(await stage.givenKey());
  await stage.admit(open);
  await stage.redis.zadd(partitionNames(stage.partition).done, 0, open.requestId);
  expect(await stage.sweeps.collect(stage.partition, 1, 1)).toEqual({ looked: 1, collected: 0 });
  expect(await stage.sweeps.collect(stage.partition, 1, 1)).toEqual({ looked: 0, collected: 0 });
  expect(await stage.requestRecord(open)).toMatchObject({ state: "held" });
});

test("a task id that is another request's by now stays with it when the first is forgotten", async () => {
  const request = stage.request(await stage.givenKey());
  await stage.givenTask(request);
  await stage.observe(request, "completed");
  const name = taskName(taskOf(request), stage.partition);
  const owned = (await stage.redis.get(name))!.replace(request.requestId, "req_of_another");
  await stage.redis.set(name, owned);
  stage.clock.nowMs += RETENTION_MS;
  expect(await stage.sweeps.collect(stage.partition, 0, 10)).toMatchObject({ collected: 1 });
  expect(await stage.requestRecord(request)).toEqual({});
  expect(await stage.redis.get(name)).toBe(owned);
});

test("COLLECT keeps what is open or young, whatever the list of ended ones says", async () => {
  const key = await stage.givenKey();
  const [held, bound, young] = times(3, () => stage.request(key));
  await stage.admit(held!);
  await stage.givenTask(bound!);
  await stage.givenTask(young!);
  await stage.observe(young!, "completed");
  stage.clock.nowMs += RETENTION_MS - 1;
  const before = await stage.everything();
  for (const { requestId } of [held!, bound!, young!]) {
    const call = {
      partition: stage.partition,
      requestId,
      taskId: undefined,
      retentionMs: 0,
    };
    const item = itemOf(collect, call, String(stage.clock.nowMs));
    expect(await connection.scripts.send(collect, [item])).toEqual([["kept"]]);
  }
  expect(await stage.everything()).toEqual(before);
});
