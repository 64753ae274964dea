import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { ClaimError } from "../../src/durability/claims.ts";
import { createTaskIds } from "../../src/durability/task-ids.ts";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import { issueKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { claimName, claimText, digestOf, keyRef, taskName } from "../../src/records/names.ts";
import { createScriptRunner, itemOf, type ScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import type { RunningRedis } from "../../src/sandbox/redis.ts";
import type { BindCall, Generation } from "../../src/scripts/holds.ts";
import type { Reply, Run } from "../../src/scripts/script-definition.ts";
import { createSweeps } from "../../src/settlement/sweeps.ts";
import { createClient } from "../support/client.ts";
import {
  createStage,
  HOLD_MS,
  newTask,
  onOneServer,
  openConnection,
  openStore,
  RETENTION_MS,
  randomId,
  type Stage,
  type TestConnection,
  taskOf,
  times,
} from "../support/store.ts";
import { startWholeCluster } from "../support/whole-cluster.ts";
import { plantForTest } from "./mutant-client.ts";
import { CLUSTER_MUTANTS } from "./mutants.ts";

// A single node in cluster mode refuses, like any cluster, a script whose names lie in two slots (CROSSSLOT).

let dir: string;
let server: RunningRedis;
let connection: TestConnection;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-cluster-"));
  server = await startWholeCluster(dir);
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
  const { script, item } = await one.onItsWay(() => one.store.voidHold(one.request(key), one.tiers));
  const keys = item.keys.map((name, at) => (at === 5 ? name.replace("{p01}", "{p02}") : name));
  const [reply] = await scriptsOf(connection.redis).send(script, [{ ...item, keys }]);
  await expect(Promise.reject(reply)).rejects.toThrow(/do not hash to the same slot/);
});

test("an account lives its whole life on a cluster", async () => {
  const { key: token, accountId } = await issueKey(oneNode(connection.redis), { credits: 100 }, cliActor());
  const key = await createStage(connection).store.lookup(digestOf(token), {
    standard: { rate_limit: 20, max_concurrent: 3, daily_limit: 500 },
  });
  if (!key) throw new Error("the key is not found");
  expect(await grantCredits(oneNode(connection.redis), accountId, 20, "order 1", cliActor())).toMatchObject({
    balance: 120,
  });
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
  expect(await stage.store.voidHold(refused!, stage.tiers)).toMatchObject({ state: { active: 0 } });
  await expectSwept(stage, key);
  expect(await stage.credits(key)).toMatchObject({ balance: 110, totalUsed: 10, state: { active: 0 } });
  const verified = await verifyLedger(oneNode(connection.redis), { accountIds: [accountId] });
  expect(verified).toMatchObject({ ok: true, accounts: 1, credits: { recharged: 120 } });
});

async function expectSwept(stage: Stage, key: Parameters<Stage["request"]>[0]): Promise<void> {
  const [left, unsent] = times(2, () => stage.request(key));
  await stage.admit(left!);
  await stage.admit(unsent!);
  expect(await stage.void(unsent!, "unsent")).toBe("void");
  stage.clock.nowMs += HOLD_MS;
  const { requests } = await stage.sweeps.lease("holds", key.partition, 10);
  expect(requests.map(({ requestId }) => requestId)).toEqual([left!.requestId]);
  expect(await stage.sweeps.voidDue(requests[0]!)).toBe("void");
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
    // The owner's task is disputed from then on, and nothing else happens.
    const task = taskName(taskId, 3);
    expect({ ...(await stage.everything()), [task]: "" }).toEqual({ ...before, [task]: "" });
  }
  expect(await one.bind(owner)).toBe("bound");
  await one.observe(owner, "expired");
  one.clock.nowMs += 2 * RETENTION_MS;
  await one.sweeps.collect(3, 0, 10);
  expect(await two.bind(stranger.generation, taskId)).toBe("bound");
});

/** The answers to the owner of a task id once the upstream reports the task as completed, by the steps before. */
async function playDisputes(scripts: ScriptRunner): Promise<Record<string, string>> {
  const [here, there] = [11, 12].map((partition) => createStage(connection, { partition, scripts }));
  const key = await here!.givenKey();
  const strangers = await there!.givenKey();
  const outcomes: Record<string, string> = {};

  /** A request whose task id goes to others, too, before its BIND or after it. */
  async function given(what: string, steps: (owner: Owner) => Promise<void>): Promise<void> {
    const generation = here!.request(key);
    const taskId = taskOf(generation);
    const conflict = async (stage: Stage, of: typeof key) => {
      const second = stage.request(of);
      await stage.admit(second);
      const binding = await stage.bind(second, taskId);
      if (binding !== "conflict") throw new Error(`${what}: ${binding}`);
    };
    await here!.admit(generation);
    await steps({
      generation,
      claim: () => connection.redis.set(claimName(taskId), claimText(generation.requestId, 11)),
      bind: () => here!.bind(generation),
      finish: () => here!.observe(generation, "completed", { data: '{"first":1}' }),
      byStranger: () => conflict(there!, strangers),
      byOwnAccount: () => conflict(here!, key),
    });
    const { outcome, isDisputed, data } = await here!.observe(generation, "completed");
    outcomes[what] = isDisputed ? "disputed" : data === '{"first":1}' ? "as answered" : outcome;
    await here!.observe(generation, "expired");
  }

  await given("it runs", async ({ bind, byStranger }) => {
    await bind();
    await byStranger();
  });
  await given("it has ended", async ({ bind, finish, byStranger }) => {
    await bind();
    await finish();
    await byStranger();
  });
  await given("it runs, of one account", async ({ bind, byOwnAccount }) => {
    await bind();
    await byOwnAccount();
  });
  await given("before its BIND", async ({ claim, bind, byStranger }) => {
    await claim();
    await byStranger();
    await bind();
  });
  await given("before its BIND, of one account", async ({ claim, bind, byOwnAccount }) => {
    await claim();
    await byOwnAccount();
    await bind();
  });
  await given("before its BIND, twice", async ({ claim, bind, byStranger, byOwnAccount }) => {
    await claim();
    await byStranger();
    await byOwnAccount();
    await bind();
  });
  await given("of a request before it", async ({ generation, bind, byStranger }) => {
    await connection.redis.set(claimName(taskOf(generation)), claimText("req_before", 11));
    await byStranger();
    await connection.redis.del(claimName(taskOf(generation)));
    await bind();
  });
  await given("of a request after it", async ({ generation, bind, byStranger }) => {
    await bind();
    await connection.redis.set(claimName(taskOf(generation)), claimText("req_after", 11));
    await byStranger();
  });
  return outcomes;
}

interface Owner {
  generation: Generation;
  claim(): Promise<unknown>;
  bind(): Promise<unknown>;
  finish(): Promise<unknown>;
  byStranger(): Promise<void>;
  byOwnAccount(): Promise<void>;
}

const DISPUTES = {
  "it runs": "disputed",
  "it has ended": "as answered",
  "it runs, of one account": "finished",
  "before its BIND": "disputed",
  "before its BIND, of one account": "finished",
  "before its BIND, twice": "disputed",
  "of a request before it": "finished",
  "of a request after it": "finished",
};

// Guarantee: nobody is shown another account's video, and an answer that was given about an ended task stays.
test("a task id that the upstream gives to two accounts is disputed on a cluster, too, also before its owner's BIND", async () => {
  expect(await playDisputes(connection.scripts)).toEqual(DISPUTES);
});

test.each(CLUSTER_MUTANTS)("a mistake in the scripts shows: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  const other = createClient(server.url, 10_000);
  try {
    await other.connect();
    const outcomes = await playDisputes(createScriptRunner(other, { folder })).catch(String);
    expect(outcomes).not.toContain("compiling script");
    expect(outcomes).not.toEqual(DISPUTES);
  } finally {
    other.disconnect();
  }
});

// A collector once deleted the claim that a new request had taken between its two steps.
test("what is collected gives back its own task id alone, not one that a new request has taken since", async () => {
  const one = createStage(connection, { partition: 8 });
  const [stolen, own] = times(2, () => one.request(keyRef(randomId("key"), randomId("acc"), 8)));
  for (const request of [stolen!, own!]) {
    await one.bind(request);
    await one.observe(request, "completed");
  }
  const another = claimText("req_of_another", 9);
  await connection.redis.set(claimName(taskOf(stolen!)), another);
  one.clock.nowMs += RETENTION_MS;
  expect(await one.sweeps.collect(8, 0, 10)).toEqual({ looked: 2, collected: 2 });
  expect(await connection.redis.get(claimName(taskOf(stolen!)))).toBe(another);
  expect(await connection.redis.get(claimName(taskOf(own!)))).toBeNull();
});

// Guarantee: while the primary of a claim is away other records are collected, and no claim is left for long.
test("what has its claim on a primary that is away is collected once that is back, and its task id is given back", async () => {
  const one = createStage(connection, { partition: 12 });
  const key = await one.givenKey({ partition: 12 });
  const [task, other, next] = times(3, () => one.request(key));
  const ended = async (generation: Generation): Promise<void> => {
    await one.givenTask(generation);
    await one.observe(generation, "completed");
  };
  await ended(task!);
  await one.admit(other!);
  await one.void(other!, "refused");
  one.clock.nowMs += RETENTION_MS;

  let fails: "all" | "del" | undefined = "all";
  const elsewhere = {
    ...connection,
    /** The claims as if they were on a primary of their own. */
    command: <T>(work: (redis: TestConnection["redis"]) => Promise<T>): Promise<T> =>
      fails === "all" || (fails === "del" && String(work).includes(".del("))
        ? Promise.reject(new Error("away"))
        : work(connection.redis),
  };
  const run: Run = async (script, call) => {
    const [reply] = await connection.scripts.send(script, [itemOf(script, call, String(one.clock.nowMs))]);
    return script.read(reply as Reply, call);
  };
  const sweeps = createSweeps(
    { ...onOneServer(connection, { run }), ofName: () => elsewhere },
    () => 90_000,
    () => one.clock.nowMs,
  );
  const claimed = (): Promise<string | null> => connection.redis.get(claimName(taskOf(task!)));

  expect(await sweeps.collect(12, 0, 10)).toEqual({ looked: 1, collected: 1 });
  expect(await one.requestRecord(task!)).toMatchObject({ state: "finished" });
  expect(await one.requestRecord(other!)).toEqual({});
  fails = "del";
  expect(await sweeps.collect(12, 0, 10)).toEqual({ looked: 1, collected: 1 });
  expect(await claimed()).not.toBeNull();
  fails = undefined;
  await ended(next!);
  one.clock.nowMs += RETENTION_MS;
  expect(await sweeps.collect(12, 0, 10)).toEqual({ looked: 1, collected: 1 });
  expect(await claimed()).toBeNull();
});

// Guarantee: a BIND that is refused leaves no task id taken by a request that is no more.
test("a BIND of a collected request is refused, and its task id stays free", async () => {
  const one = createStage(connection, { partition: 9 });
  const key = await one.givenKey({ partition: 9, credits: 100 });
  const generation = one.request(key);
  await one.admit(generation);
  const { calls, deferred } = await one.unsent(() => one.bind(generation));
  expect(calls.map(({ script }) => script.name)).toEqual(["bind"]);
  expect(await one.settle(deferred!)).toBe("bound");
  await one.observe(generation, "completed");
  one.clock.nowMs += RETENTION_MS;
  expect(await one.sweeps.collect(9, 0, 10)).toMatchObject({ collected: 1 });
  expect(await one.settle(deferred!)).toBe("forgotten");
  expect(await connection.redis.get(claimName(taskOf(generation)))).toBeNull();
  expect(await one.account(key)).toMatchObject({ balance: 90 });
});

// Guarantee: a changed primary gets an answered charge back also while the primary of its claim is away.
test("a charge that was answered before does not wait for its claim's primary, a new one does", async () => {
  const one = createStage(connection, { partition: 13 });
  const key = await one.givenKey({ partition: 13, credits: 100 });
  const [answered, fresh] = times(2, () => one.request(key));
  const callOf = async (generation: Generation): Promise<BindCall> => {
    await one.admit(generation);
    const { deferred } = await one.unsent(() => one.bind(generation));
    return deferred!.call as BindCall;
  };
  const repeated = await callOf(answered!);
  const first = await callOf(fresh!);
  let isAway = true;
  const elsewhere = {
    command: <T>(work: (redis: TestConnection["redis"]) => Promise<T>): Promise<T> =>
      isAway ? Promise.reject(new Error("away")) : work(connection.redis),
  };
  const tasks = createTaskIds({ of: connection.of, ofName: () => elsewhere, known: connection.known });
  expect(await tasks.bind(repeated, true)).toBe("bound");
  await expect(tasks.bind(first)).rejects.toThrow(ClaimError);
  expect(await one.requestRecord(fresh!)).toMatchObject({ state: "held" });
  isAway = false;
  expect(await tasks.bind(first)).toBe("bound");
  expect(await one.requestRecord(fresh!)).toMatchObject({ state: "bound" });
});

test("what one turn asks for goes out in one call for all partitions of the node", async () => {
  const stages = [createStage(connection, { partition: 5 }), createStage(connection, { partition: 6 })];
  const keys = await Promise.all(times(6, (at) => stages[at % 2]!.givenKey()));
  const generations = times(24, (at) => stages[0]!.request(keys[at % keys.length]!));
  const store = openStore(connection);
  const batches = vi.spyOn(connection.scripts, "send");
  try {
    const admissions = await Promise.all(generations.map((one) => store.admit(one, stages[0]!.tiers)));
    expect(admissions.map(({ outcome }) => outcome)).toEqual(times(24, () => "admitted"));
    const calls = batches.mock.calls.map(([script, items]) => [script.name, items.length]);
    expect(calls).toEqual([["admit", 24]]);
    batches.mockClear();
    const taskId = randomId("task");
    const bindings = await Promise.all(
      generations.map((one, at) => store.bind(one, newTask(`${taskId}_${at}`))),
    );
    expect(bindings).toEqual(times(24, () => "bound"));
    // All claims are one pipeline, so the BINDs meet in one tick again.
    const sent = batches.mock.calls;
    expect(sent.map(([script, items]) => [script.name, items.length])).toEqual([["bind", 24]]);
    for (const { keys: names } of sent[0]![1])
      expect(new Set(names.filter(Boolean).map((name) => /\{\w+\}/.exec(name)?.[0])).size).toBe(1);
  } finally {
    batches.mockRestore();
  }
});
