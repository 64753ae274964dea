import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { type RunningRedis, startRedis } from "../../src/sandbox/redis.ts";
import { type IssuedKey, issueKey } from "../../src/store/accounts.ts";
import { createClient } from "../../src/store/client.ts";
import type { Layout } from "../../src/store/layout.ts";
import { migrateStore } from "../../src/store/migrate.ts";
import {
  claimName,
  claimText,
  digestOf,
  earlierTaskName,
  type KeyRef,
  META,
  requestName,
  taskName,
} from "../../src/store/names.ts";
import { oneNode, type RedisNodes } from "../../src/store/nodes.ts";
import { findTask, releaseTask } from "../../src/store/operator-tasks.ts";
import { oldOpenRequests } from "../../src/store/operator-views.ts";
import { createScriptRunner, type ScriptRunner } from "../../src/store/script-runner.ts";
import type { Generation } from "../../src/store/scripts/admit.ts";
import { move } from "../../src/store/scripts/move.ts";
import { partitionsOf, readFacts, type StoreFacts } from "../../src/store/store-facts.ts";
import {
  createStage,
  openConnection,
  RETENTION_MS,
  randomId,
  type Stage,
  type TestConnection,
  TIERS,
  taskOf,
  times,
} from "../support/store.ts";
import { MOVE_MUTANTS, plant } from "./mutants.ts";

// Layouts are a store's, so these tests have one of their own. A gateway of an earlier release is played by one that goes on
// with the facts that it had.

let dir: string;
let server: RunningRedis;
let connection: TestConnection;
let nodes: RedisNodes;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-layout-"));
  server = await startRedis({ dir, persistent: false });
  connection = await openConnection(server.url);
  nodes = oneNode(connection.redis);
});
beforeEach(async () => {
  await connection.redis.flushall();
  await connection.redis.hset(META, { partitions: 64, id: connection.facts()!.id!, layout: "2" });
});
afterAll(async () => {
  await connection?.close();
  await server?.stop();
  await rm(dir, { recursive: true, force: true });
});

/** A gateway that takes the store for one of this layout; its account's keys are real, and so are their partitions. */
function gatewayOf(layout: Layout, options: Parameters<typeof createStage>[1] = {}): Stage {
  const facts: StoreFacts = { id: "store", partitions: 64, cluster: false, layout };
  return createStage({ ...connection, facts: () => facts }, { partition: 0, ...options });
}

async function givenKey(): Promise<KeyRef & Pick<IssuedKey, "accountId">> {
  const { key } = await issueKey(nodes, { credits: 1000, limits: { rateLimit: 1000, maxConcurrent: 1000 } });
  return (await createStage(connection).store.lookup(digestOf(key), TIERS))!;
}

const namesOf = (pattern: string): Promise<string[]> => connection.redis.keys(pattern);
const pollOf = async (stage: Stage, key: KeyRef, taskId: string) =>
  stage.store.inspectTask(key, taskId, 5000, stage.tiers);

describe("the layout of a store", () => {
  test("is 2 for a new one, 1 for one that has been used by an earlier release, and stays", async () => {
    await connection.redis.del(META);
    expect(await readFacts(nodes, 64)).toMatchObject({ layout: "2" });
    expect(await connection.redis.hget(META, "layout")).toBe("2");
    await connection.redis.hdel(META, "layout");
    expect(await readFacts(nodes, 64)).toMatchObject({ layout: "1" });
    expect(await readFacts(nodes, 64)).toMatchObject({ layout: "1" });
  });

  // Guarantee: no release writes to a store in a way that it does not know.
  test("is refused in plain words if it is of a later release, by gateways and commands", async () => {
    await connection.redis.hset(META, "layout", "4");
    const words =
      "the store has layout 4, and this release of Tollgate knows layouts 1 to 3; run the later release";
    await expect(readFacts(nodes, 64)).rejects.toThrow(words);
    await expect(partitionsOf(nodes)).rejects.toThrow(words);
    await expect(migrateStore(nodes)).rejects.toThrow(words);
  });
});

describe("on one server, in layout 2", () => {
  test("a task id belongs to one request over all partitions, in one call, until it is forgotten", async () => {
    const [one, two] = [createStage(connection, { partition: 3 }), createStage(connection, { partition: 4 })];
    const owner = one.request(await one.givenKey());
    const second = two.request(await two.givenKey());
    const taskId = taskOf(owner);
    await one.givenTask(owner);
    expect(await connection.redis.get(claimName(taskId))).toBe(claimText(owner.requestId, 3));
    await two.admit(second);
    const before = await two.everything();
    const sent = vi.spyOn(connection.scripts, "send");
    expect(await two.bind(second, taskId)).toBe("conflict");
    sent.mockRestore();
    expect(await two.everything()).toEqual(before);
    // From then on the upstream may speak of either task.
    expect(await one.observe(owner, "completed")).toMatchObject({ isDisputed: true });
    await one.observe(owner, "expired");
    one.clock.nowMs += RETENTION_MS;
    expect(await one.sweeps.collect(3, 0, 10)).toMatchObject({ collected: 1 });
    expect(await namesOf(`*${taskId}`)).toEqual([]);
    expect(await two.bind(second, taskId)).toBe("bound");
  });
});

describe("a store of layout 1", () => {
  beforeEach(() => connection.redis.hset(META, "layout", "1"));

  // Guarantee: gateways of two releases serve one store during a rolling update.
  test("is used as an earlier release does, by its names alone", async () => {
    const gateway = gatewayOf("1");
    const key = await givenKey();
    const [generation, second] = times(2, () => gateway.request(key));
    const taskId = taskOf(generation!);
    await gateway.givenTask(generation!);
    expect(await namesOf(`*${taskId}`)).toEqual([earlierTaskName(taskId)]);
    expect(await pollOf(gateway, key, taskId)).toMatchObject({ outcome: "task" });
    expect(await gateway.store.isTaskBound(taskId)).toBe(true);
    await gateway.admit(second!);
    expect(await gateway.bind(second!, taskId)).toBe("conflict");
    expect(await findTask(nodes, taskId)).toMatchObject({ requestId: generation!.requestId });
    expect(await gateway.observe(generation!, "completed")).toMatchObject({ outcome: "finished" });
    gateway.clock.nowMs += RETENTION_MS;
    expect(await gateway.sweeps.collect(key.partition, 0, 10)).toMatchObject({ collected: 1 });
    expect(await namesOf(`*${taskId}`)).toEqual([]);
  });

  // Guarantee: no customer's task is lost in the seconds in which some gateways know of a migration, and some do not.
  test("is seen to move by a gateway that has not read the facts again", async () => {
    const [behind, ahead] = [gatewayOf("1"), gatewayOf("1>2")];
    const key = await givenKey();
    expect(await pollOf(behind, key, "nobody's")).toMatchObject({ outcome: "not_found" });
    await connection.redis.hset(META, "layout", "1>2");
    const generation = ahead.request(key);
    await ahead.givenTask(generation);
    expect(await pollOf(behind, key, taskOf(generation))).toMatchObject({ outcome: "task" });
    await behind.observe(generation, "completed");
    expect(await namesOf(earlierTaskName("*"))).toEqual([]);
  });

  test("is migrated record by record as they are met, whoever wrote them", async () => {
    const [earlier, gateway] = [gatewayOf("1"), gatewayOf("1>2")];
    const key = await givenKey();
    const [polled, observed, rebound, taken, collected] = times(5, () => earlier.request(key));
    for (const one of [polled!, observed!, rebound!, taken!, collected!]) await earlier.givenTask(one);
    await connection.redis.hset(META, "layout", "1>2");

    expect(await pollOf(gateway, key, taskOf(polled!))).toMatchObject({ outcome: "task" });
    await gateway.observe(observed!, "processing");
    expect(await gateway.bind(rebound!)).toBe("bound");
    const second = gateway.request(await givenKey());
    await gateway.admit(second);
    expect(await gateway.bind(second, taskOf(taken!))).toBe("conflict");
    expect(await gateway.observe(taken!, "completed")).toMatchObject({ isDisputed: true });
    for (const one of [polled!, observed!, rebound!, taken!]) {
      const taskId = taskOf(one);
      const record = taskName(taskId, key.partition);
      expect((await namesOf(`*${taskId}`)).sort()).toEqual([claimName(taskId), record].sort());
      expect(await connection.redis.get(claimName(taskId))).toBe(claimText(one.requestId, key.partition));
      expect(await gateway.store.isTaskBound(taskId)).toBe(true);
    }
    expect(await findTask(nodes, taskOf(collected!))).toMatchObject({ requestId: collected!.requestId });
    await gateway.observe(collected!, "completed");
    gateway.clock.nowMs += RETENTION_MS;
    await gateway.sweeps.collect(key.partition, 0, 10);
    expect(await namesOf(`*${taskOf(collected!)}`)).toEqual([]);
  });
});

interface Load {
  key: KeyRef;
  generation: Generation;
  /** The end that the upstream gave its task; none while it runs. */
  end?: "completed" | "failed";
}

/** One round of load on a gateway: a task starts, and some that started before end. */
async function round(gateway: Stage, keys: readonly KeyRef[], tasks: Load[]): Promise<void> {
  const at = tasks.length;
  const key = keys[at % keys.length]!;
  const generation = gateway.request(key);
  await gateway.givenTask(generation);
  tasks.push({ key, generation });
  const other = tasks[Math.floor((at * 7) / 11) % tasks.length]!;
  const end = other.end ?? (at % 2 === 0 ? "completed" : "failed");
  await gateway.observe(other.generation, at % 3 === 0 ? end : "processing");
  if (at % 3 === 0) other.end = end;
}

/** What customers and operators find of each task, and whether the money is right. */
async function expectWhole(gateway: Stage, keys: readonly KeyRef[], tasks: readonly Load[]): Promise<void> {
  for (const { key, generation, end } of tasks) {
    const taskId = taskOf(generation);
    const found = await pollOf(gateway, key, taskId);
    expect(found).toMatchObject({ outcome: "task", task: { requestId: generation.requestId } });
    if (end && found.outcome === "task") expect(found.task.status).toBe(end);
    expect(await connection.redis.get(claimName(taskId))).toBe(
      claimText(generation.requestId, key.partition),
    );
    const second = gateway.request(keys[0]!);
    await gateway.admit(second);
    expect(await gateway.bind(second, taskId)).toBe("conflict");
    await gateway.store.voidHold(second, gateway.tiers);
  }
  expect(await verifyLedger(nodes)).toMatchObject({ ok: true, accounts: keys.length });
  let charged = 0;
  for (const key of keys) charged += 1000 - (await gateway.account(key)).balance;
  expect(charged).toBe(10 * tasks.filter(({ end }) => end !== "failed").length);
}

describe("`store migrate`", () => {
  beforeEach(() => connection.redis.hset(META, "layout", "1"));

  // Guarantee: an update loses nothing and doubles nothing, with gateways of both releases at work.
  test("moves a store that is in use, while gateways of an earlier release drain", async () => {
    const keys = await Promise.all(times(5, givenKey));
    const [earlier, gateway] = [gatewayOf("1"), gatewayOf("1>2")];
    const tasks: Load[] = [];
    for (let at = 0; at < 60; at++) await round(earlier, keys, tasks);

    // Each look at all names meets what an earlier gateway has written since the one before.
    let looks = 0;
    const progress = async (): Promise<void> => {
      looks++;
      await round(gateway, keys, tasks);
      if (looks < 5) await round(earlier, keys, tasks);
    };
    let load = Promise.resolve();
    const migration = await migrateStore(nodes, { waitMs: 20, progress: () => (load = load.then(progress)) });
    await load;
    expect(migration).toMatchObject({ from: "1", disputed: 0 });
    // What an earlier gateway wrote after the last look, a repeat moves.
    await migrateStore(nodes, { waitMs: 0 });
    expect(await connection.redis.hget(META, "layout")).toBe("2");
    expect(await namesOf(earlierTaskName("*"))).toEqual([]);
    await expectWhole(gatewayOf("2"), keys, tasks);
  });

  // Guarantee: it may be killed at any point.
  test("goes on where it was stopped, and gateways serve in between", async () => {
    const keys = await Promise.all(times(3, givenKey));
    const [earlier, gateway] = [gatewayOf("1"), gatewayOf("1>2")];
    const tasks: Load[] = [];
    for (let at = 0; at < 40; at++) await round(earlier, keys, tasks);
    for (const stopAt of ["wait", "move"]) {
      const stopped = new Error("stopped");
      const { redis } = connection;
      const spy =
        stopAt === "wait"
          ? vi.spyOn(redis, "scan").mockRejectedValueOnce(stopped)
          : vi.spyOn(redis as unknown as Record<string, () => Promise<unknown>>, "tollgate:move:checked");
      if (stopAt === "move") spy.mockRejectedValueOnce(stopped);
      await expect(migrateStore(nodes, { waitMs: 0 })).rejects.toBe(stopped);
      spy.mockRestore();
      expect(await connection.redis.hget(META, "layout")).toBe("1>2");
      await round(gateway, keys, tasks);
    }
    const { moved } = await migrateStore(nodes, { waitMs: 0 });
    expect(moved).toBeGreaterThan(0);
    expect(await migrateStore(nodes, { waitMs: 0 })).toEqual({
      from: "2",
      to: "2",
      moved: 0,
      deleted: 0,
      disputed: 0,
    });
    await expectWhole(gatewayOf("2"), keys, tasks);
  });

  test("serves operators meanwhile", async () => {
    const earlier = gatewayOf("1");
    const key = await givenKey();
    const generation = earlier.request(key);
    await earlier.givenTask(generation);
    await earlier.observe(generation, "processing");
    await connection.redis.hset(META, "layout", "1>2");
    const { requests } = await oldOpenRequests(nodes, -1e12, 10);
    expect(requests).toMatchObject([{ status: "processing" }]);
    expect(await releaseTask(nodes, taskOf(generation))).toEqual({ outcome: "ended", refunded: 10 });
    expect(await namesOf(earlierTaskName("*"))).toEqual([]);
  });
});

/** What is left of a task in layout 1, and of what is in layout 2 already, after its move. */
async function playMoves(scripts: ScriptRunner): Promise<Record<string, unknown>> {
  const { redis } = connection;
  const outcomes: Record<string, unknown> = {};
  async function given(
    what: string,
    texts: { earlier: string; there?: string; elsewhere?: string; owner?: "other"; isCollected?: true },
  ): Promise<void> {
    const taskId = randomId("task");
    const [earlier, there, elsewhere] = [earlierTaskName(taskId), taskName(taskId, 1), taskName(taskId, 2)];
    await redis.set(earlier, texts.earlier);
    if (texts.there) await redis.set(there, texts.there);
    if (texts.elsewhere) await redis.set(elsewhere, texts.elsewhere);
    const place = texts.elsewhere ? 2 : 1;
    if (texts.elsewhere || texts.there) {
      const claimant = /^!?(\S+)/.exec(texts.elsewhere ?? texts.there ?? "")![1]!;
      await redis.set(claimName(taskId), claimText(claimant, place));
    }
    const requestId = texts.owner ?? "req";
    await redis.hset(requestName(1, requestId), "state", "bound");
    if (texts.isCollected) await redis.del(requestName(1, requestId));
    const { outcome } = await scripts.run(move, { taskId, requestId, partition: 1 });
    outcomes[what] = [outcome, ...(await redis.mget(earlier, there, elsewhere, claimName(taskId)))];
  }
  await given("as it is", { earlier: "req key acc 5" });
  await given("disputed", { earlier: "!req key acc 5" });
  await given("of another request by now", { earlier: "req key acc 5", owner: "other" });
  await given("collected", { earlier: "req key acc 5", isCollected: true });
  await given("ended in layout 2", {
    earlier: "req key acc 5 6 pending {}",
    there: "req key acc 5 7 failed {}",
  });
  await given("polled last in layout 1", {
    earlier: "req key acc 5 8 pending {}",
    there: "req key acc 5 7 processing {}",
  });
  await given("disputed in layout 2", { earlier: "req key acc 5", there: "!req key acc 5" });
  await given("another account's in another partition", {
    earlier: "req key acc 5",
    elsewhere: "sec key2 acc2 5",
  });
  await given("another account's in the same partition", {
    earlier: "req key acc 5",
    there: "sec key2 acc2 5",
  });
  return outcomes;
}

const MOVES = {
  "as it is": ["moved", null, "req key acc 5", null, "req p01"],
  disputed: ["moved", null, "!req key acc 5", null, "req p01"],
  "of another request by now": ["missing", "req key acc 5", null, null, null],
  collected: ["dropped", null, null, null, null],
  "ended in layout 2": ["moved", null, "req key acc 5 7 failed {}", null, "req p01"],
  "polled last in layout 1": ["moved", null, "req key acc 5 8 pending {}", null, "req p01"],
  "disputed in layout 2": ["moved", null, "!req key acc 5", null, "req p01"],
  "another account's in another partition": [
    "conflict",
    null,
    "!req key acc 5",
    "!sec key2 acc2 5",
    "sec p02",
  ],
  "another account's in the same partition": ["conflict", null, "!sec key2 acc2 5", null, "sec p01"],
};

test("a record is moved with its mark and its claim, and nothing that is newer is lost", async () => {
  expect(await playMoves(connection.scripts)).toEqual(MOVES);
});

test.each(MOVE_MUTANTS)("a mistake in MOVE shows: $what", async (mutant) => {
  const folder = await plant(mutant);
  const other = createClient(server.url, 10_000);
  try {
    await other.connect();
    const outcomes = await playMoves(createScriptRunner(other, { folder })).catch(String);
    expect(outcomes).not.toContain("compiling script");
    expect(outcomes).not.toEqual(MOVES);
  } finally {
    other.disconnect();
    await rm(folder, { recursive: true });
  }
});
