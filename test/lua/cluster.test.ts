import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type RunningRedis, startRedis } from "../../src/sandbox/redis.ts";
import { grantCredits, issueKey } from "../../src/store/accounts.ts";
import { type Connection, createClient } from "../../src/store/connection.ts";
import { verifyLedger } from "../../src/store/ledger.ts";
import { claimName, digestOf, keyRef } from "../../src/store/names.ts";
import { createStore } from "../../src/store/store.ts";
import {
  createStage,
  HOLD_MS,
  newTask,
  openConnection,
  RETENTION_MS,
  randomId,
  type Stage,
  taskOf,
  times,
} from "../support/store.ts";

// A single node in cluster mode refuses, like any cluster, a script whose names lie in two slots (CROSSSLOT).

let dir: string;
let server: RunningRedis;
let connection: Connection;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-cluster-"));
  server = await startRedis({ dir, persistent: false, args: ["--cluster-enabled", "yes"] });
  const redis = createClient(server.url, 10_000);
  await redis.connect();
  await redis.cluster("ADDSLOTSRANGE", 0, 16_383);
  const usable = async () => expect(await redis.cluster("INFO")).toContain("cluster_state:ok");
  await vi.waitFor(usable, { timeout: 10_000, interval: 10 });
  redis.disconnect();
  connection = await openConnection(server.url);
});
afterAll(async () => {
  await connection?.close();
  await server?.stop();
  await rm(dir, { recursive: true, force: true });
});

test("the server refuses names of two slots, so that the tests below prove something", async () => {
  const one = createStage(connection, { partition: 1 });
  const key = await one.givenKey();
  const { verb, keys, args } = await one.onItsWay(() => one.admit(one.request(key)));
  const elsewhere = keys.map((name, at) => (at === 5 ? name.replace("{p01}", "{p02}") : name));
  await expect(connection.scripts[verb](elsewhere, args)).rejects.toThrow(/do not hash to the same slot/);
});

test("an account lives its whole life on a cluster", async () => {
  const { key: token, accountId } = await issueKey(connection.redis, { credits: 100 });
  const key = await createStage(connection).store.lookup(digestOf(token), {
    standard: { rateLimit: 20, maxConcurrent: 3, dailyLimit: 500 },
  });
  if (!key) throw new Error("the key is not found");
  expect(await grantCredits(connection.redis, accountId, 20, "order 1")).toMatchObject({ balance: 120 });
  const stage = createStage(connection, { partition: key.partition });
  const idempotency = { digest: randomId("digest"), fingerprint: "f" };
  const [completed, failed, refused] = times(3, () => stage.request(key));
  const replayable = { ...completed!, idempotency };

  await stage.givenTask(replayable);
  expect(await stage.bind(replayable)).toBe("bound");
  expect(await stage.admit(stage.request(key, { idempotency }))).toMatchObject({ outcome: "replayed" });
  const polled = await stage.store.inspectTask(key, taskOf(replayable), 5000, stage.tiers);
  expect(polled).toMatchObject({ outcome: "task" });
  expect(await stage.observe(replayable, "completed", { poller: key })).toMatchObject({
    outcome: "finished",
  });

  await stage.givenTask(failed!);
  expect(await stage.observe(failed!, "failed")).toMatchObject({ refunded: 10 });
  await stage.admit(refused!);
  expect(await stage.store.giveBack(refused!, stage.tiers)).toMatchObject({ active: 0 });
  await expectSwept(stage, key);
  expect(await stage.credits(key)).toMatchObject({ balance: 110, totalUsed: 10, state: { active: 0 } });
  const verified = await verifyLedger(connection.redis, { accountIds: [accountId] });
  expect(verified).toMatchObject({ ok: true, accounts: 1, credits: { recharged: 120 } });
});

async function expectSwept(stage: Stage, key: Parameters<Stage["request"]>[0]): Promise<void> {
  const [left, unsent] = times(2, () => stage.request(key));
  await stage.admit(left!);
  await stage.admit(unsent!);
  expect(await stage.void(unsent!, "unsent")).toBe("void");
  stage.clock.nowMs += HOLD_MS;
  const { requests } = await stage.sweeps.claim("holds", key.partition, 10);
  expect(requests.map(({ requestId }) => requestId)).toEqual([left!.requestId]);
  expect(await stage.sweeps.voidDue(requests[0]!, stage.tiers)).toBe("void");
  stage.clock.nowMs += RETENTION_MS;
  expect(await stage.sweeps.collect(key.partition, 0, 10)).toMatchObject({ collected: 5 });
}

test("a task id belongs to one request over all partitions of a cluster, until it is forgotten", async () => {
  const [one, two] = [createStage(connection, { partition: 3 }), createStage(connection, { partition: 4 })];
  const owner = one.request(await one.givenKey());
  const neighbour = { stage: one, generation: one.request(await one.givenKey()) };
  const stranger = { stage: two, generation: two.request(await two.givenKey()) };
  const taskId = taskOf(owner);
  await one.givenTask(owner);
  for (const { stage, generation } of [neighbour, stranger]) {
    await stage.admit(generation);
    const before = await stage.everything();
    expect(await stage.bind(generation, taskId)).toBe("conflict");
    expect(await stage.everything()).toEqual(before);
  }
  expect(await one.bind(owner)).toBe("bound");
  await one.observe(owner, "completed");
  one.clock.nowMs += RETENTION_MS;
  await one.sweeps.collect(3, 0, 10);
  expect(await two.bind(stranger.generation, taskId)).toBe("bound");
});

// A collector once deleted the claim that a new request had taken between its two steps.
test("what is collected gives back its own task id alone, not one that a new request has taken since", async () => {
  const one = createStage(connection, { partition: 8 });
  const [stolen, own] = times(2, () => one.request(keyRef(randomId("key"), randomId("acc"), 8)));
  for (const request of [stolen!, own!]) {
    await one.bind(request);
    await one.observe(request, "completed");
  }
  await connection.redis.set(claimName(taskOf(stolen!)), "req_of_another");
  one.clock.nowMs += RETENTION_MS;
  expect(await one.sweeps.collect(8, 0, 10)).toEqual({ looked: 2, collected: 2 });
  expect(await connection.redis.get(claimName(taskOf(stolen!)))).toBe("req_of_another");
  expect(await connection.redis.get(claimName(taskOf(own!)))).toBeNull();
});

test("what one turn asks for goes out in one call for each partition", async () => {
  const stages = [createStage(connection, { partition: 5 }), createStage(connection, { partition: 6 })];
  const keys = await Promise.all(times(6, (at) => stages[at % 2]!.givenKey()));
  const generations = times(24, (at) => stages[0]!.request(keys[at % keys.length]!));
  const store = createStore(connection);
  const batches = vi.spyOn(connection.scripts, "batch");
  try {
    const admissions = await Promise.all(generations.map((one) => store.admit(one, stages[0]!.tiers)));
    expect(admissions.map(({ outcome }) => outcome)).toEqual(times(24, () => "admitted"));
    const calls = batches.mock.calls.map(([verb, items]) => [verb, items.length]);
    expect(calls).toEqual([
      ["admit", 12],
      ["admit", 12],
    ]);
    batches.mockClear();
    const taskId = randomId("task");
    const bindings = await Promise.all(
      generations.map((one, at) => store.bind(one, newTask(`${taskId}_${at}`), stages[0]!.tiers)),
    );
    expect(bindings).toEqual(times(24, () => "bound"));
    expect(batches.mock.calls.flatMap(([, items]) => items)).toHaveLength(24);
    for (const [, items] of batches.mock.calls) {
      const tags = items.flatMap((item) => item.keys).map((name) => /\{\w+\}/.exec(name)?.[0]);
      expect(new Set(tags).size).toBe(1);
    }
  } finally {
    batches.mockRestore();
  }
});
