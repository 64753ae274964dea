import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { type RunningRedis, startRedis } from "../../src/sandbox/redis.ts";
import { readCheckpoint } from "../../src/store/checkpoints.ts";
import { createClient } from "../../src/store/client.ts";
import { type IssuedKey, issueKey } from "../../src/store/issue-key.ts";
import { LEDGER_START, readLedger } from "../../src/store/ledger-entries.ts";
import { convertCallOf, migrateStore } from "../../src/store/migrate.ts";
import {
  claimName,
  claimText,
  digestOf,
  earlierTaskName,
  type KeyRef,
  META,
  partitionOf,
  requestName,
  taskName,
} from "../../src/store/names.ts";
import { oneNode, type RedisNodes } from "../../src/store/nodes.ts";
import { createScriptRunner, type ScriptRunner } from "../../src/store/script-runner.ts";
import type { Generation } from "../../src/store/scripts/admit.ts";
import { convert } from "../../src/store/scripts/convert.ts";
import { move } from "../../src/store/scripts/move.ts";
import { partitionsOf, readFacts } from "../../src/store/store-facts.ts";
import { trimLedger } from "../../src/store/trimming.ts";
import { putBack, putTasksBack } from "../support/earlier-layout.ts";
import { writeEntries } from "../support/ledger-entries.ts";
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
import { CONVERT_MUTANTS, MOVE_MUTANTS, plant } from "./mutants.ts";
import { contentOf } from "./stored.ts";

const RULES = { partitions: 64, allowNoPersistence: true };

// Layouts are a store's, so these tests have one of their own.

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
  await connection.redis.hset(META, { partitions: 64, id: connection.facts()!.id!, layout: "4" });
});
afterAll(async () => {
  await connection?.close();
  await server?.stop();
  await rm(dir, { recursive: true, force: true });
});

async function givenKey(): Promise<KeyRef & Pick<IssuedKey, "accountId">> {
  const { key } = await issueKey(nodes, { credits: 1000, limits: { rateLimit: 1000, maxConcurrent: 1000 } });
  return (await createStage(connection).store.lookup(digestOf(key), TIERS))!;
}

const namesOf = (pattern: string): Promise<string[]> => connection.redis.keys(pattern);

describe("the layout of a store", () => {
  test("is 4 for a new one, and stays", async () => {
    await connection.redis.del(META);
    await readFacts(nodes, RULES);
    expect(await connection.redis.hget(META, "layout")).toBe("4");
    await readFacts(nodes, RULES);
  });

  // Guarantee: no release writes to a store in a way that it does not know.
  test.each([
    ["5", "the store has layout 5, and this release of Tollgate knows layouts 1 to 4; run the later release"],
    ["3", "the store has layout 3, of an earlier release; run `tollgate store migrate`"],
    ["2", "the store has layout 2, of an earlier release; run `tollgate store migrate`"],
    ["1>2", "the store has layout 1>2, of an earlier release; run `tollgate store migrate`"],
    [undefined, "the store has layout 1, of an earlier release; run `tollgate store migrate`"],
    [">4", "wait until `tollgate store migrate` has ended, or run it again"],
  ])("is refused in plain words if it is %s, by gateways and commands", async (layout, words) => {
    if (layout) await connection.redis.hset(META, "layout", layout);
    else await connection.redis.hdel(META, "layout");
    await expect(readFacts(nodes, RULES)).rejects.toThrow(words);
    await expect(partitionsOf(nodes)).rejects.toThrow(words);
    if (layout === "5") await expect(migrateStore(nodes)).rejects.toThrow(words);
    expect(await connection.redis.hget(META, "layout")).toBe(layout ?? null);
  });
});

describe("on one server", () => {
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

/** Five accounts with holds, tasks that run, ended ones, a void hold and grants; every third key of an account of its own. */
async function givenTraffic(): Promise<{ stage: Stage; keys: KeyRef[]; running: Generation[] }> {
  const stage = createStage(connection, { clock: "redis" });
  const keys = await Promise.all(times(5, givenKey));
  const running: Generation[] = [];
  for (const [at, key] of keys.entries()) {
    const [held, ended, failed, seen, unseen, gone] = times(6, () => stage.request(key));
    await stage.admit(held!);
    for (const one of [ended!, failed!, seen!, unseen!]) await stage.givenTask(one);
    await stage.observe(ended!, "completed");
    await stage.observe(failed!, "failed");
    await stage.observe(seen!, "processing");
    await stage.admit(gone!);
    await stage.store.voidHold(gone!, stage.tiers);
    running.push(seen!, unseen!);
    if (at % 2 === 0) await issueKey(nodes, { accountId: key.accountId });
    await trimPartition(key.partition);
  }
  return { stage, keys, running };
}

/** Entries leave up to the charge of the first task that runs. */
async function trimPartition(partition: number): Promise<void> {
  const archivedTo = (await readLedger(connection.redis, partition, LEDGER_START)).at(-1)!;
  await trimLedger(connection.scripts.run, { partition, archivedTo, keepMs: 0 });
}

/** Entries of one millisecond, of which all but the last leave. */
async function givenEntriesOfOneMs(): Promise<string[]> {
  const partition = partitionOf("fast", 64);
  const atMs = 1_790_000_000_000;
  const given = times(12, (at) => ({ accountId: "fast", amount: at + 1, atMs, reference: `order ${at}` }));
  const ids = await writeEntries(connection.redis, partition, given);
  await trimPartition(partition);
  return ids;
}

/** All names with what they hold, and how long they live. */
async function everything(): Promise<Map<string, unknown>> {
  const { redis } = connection;
  const all = new Map<string, unknown>();
  for (const name of (await redis.keys("tg:*")).sort()) {
    if (name === META || name.endsWith(":usable")) continue;
    const content = await contentOf(redis, name);
    // Of a store of layout 3 the index does not know the entries.
    const value = name.includes(":reference-index:")
      ? JSON.stringify(content).replaceAll(/@[\d-]+/g, "")
      : content;
    all.set(name, { value, lives: (await redis.pttl(name)) > 0 });
  }
  return all;
}

test("a checkpoint's lines tell entries of one millisecond apart", async () => {
  const ids = await givenEntriesOfOneMs();
  const { tail } = (await readCheckpoint(connection.redis, partitionOf("fast", 64), "fast"))!;
  expect(tail.map(({ streamId }) => streamId)).toEqual(ids.slice(1, 11).toReversed());
  expect(tail.map(({ balanceAfter }) => balanceAfter)).toEqual([66, 55, 45, 36, 28, 21, 15, 10, 6, 3]);
});

describe("`store migrate`", () => {
  // Guarantee: an update loses nothing and changes nothing: neither money, nor what is open, nor what was.
  test("brings a store of layout 3 to layout 4 as if it had always had it", async () => {
    const { stage, keys, running } = await givenTraffic();
    const before = await everything();
    const put = await putBack(connection.redis);
    expect(put).toBeGreaterThan(5);
    await connection.redis.hset(META, "layout", "3");
    expect(await migrateStore(nodes, { waitMs: 0 })).toEqual({
      from: "3",
      to: "4",
      converted: put,
      moved: 0,
      deleted: 0,
      disputed: 0,
    });
    expect(await everything()).toEqual(before);
    await readFacts(nodes, RULES);
    for (const one of running) expect(await stage.observe(one, "failed")).toMatchObject({ refunded: 10 });
    expect(await verifyLedger(nodes)).toMatchObject({ ok: true, accounts: keys.length });
  });

  // Guarantee: it may be killed at any point.
  test("goes on where it was stopped, and nobody uses the store in between", async () => {
    await givenEntriesOfOneMs();
    await givenTraffic();
    const before = await everything();
    await putBack(connection.redis);
    await connection.redis.hset(META, "layout", "2");
    const stopped = new Error("stopped");
    const { redis } = connection;
    const calls = redis as unknown as Record<string, () => Promise<unknown>>;
    for (const stopAt of ["scan", "first", "second"]) {
      const spy = stopAt === "scan" ? vi.spyOn(redis, "scan") : vi.spyOn(calls, "tollgate:convert:checked");
      if (stopAt === "second")
        spy.mockImplementationOnce(calls["tollgate:convert:checked"]!.bind(redis) as never);
      spy.mockRejectedValueOnce(stopped);
      // With few records at a time there are several calls.
      await expect(migrateStore(nodes, { waitMs: 0, recordsMax: 3 })).rejects.toBe(stopped);
      spy.mockRestore();
      expect(await redis.hget(META, "layout")).toBe(">4");
      await expect(readFacts(nodes, RULES)).rejects.toThrow("is being migrated");
    }
    expect(await migrateStore(nodes, { waitMs: 0 })).toMatchObject({ from: ">4", to: "4" });
    expect(await everything()).toEqual(before);
    expect(await migrateStore(nodes, { waitMs: 0 })).toMatchObject({ from: "4", converted: 0, moved: 0 });
  });

  test("brings a store of layout 1 to layout 4, with the tasks that have no place in a partition", async () => {
    const { running } = await givenTraffic();
    const before = await everything();
    await putBack(connection.redis);
    await putTasksBack(connection.redis);
    await connection.redis.hdel(META, "layout");
    const migration = await migrateStore(nodes, { waitMs: 0 });
    expect(migration).toMatchObject({ from: "1", to: "4", moved: 20, disputed: 0 });
    expect(running).toHaveLength(10);
    expect(await everything()).toEqual(before);
  });

  test("has nothing to do for a store that was never used, and says so", async () => {
    await connection.redis.del(META);
    await expect(migrateStore(nodes)).rejects.toThrow("this store was never used");
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

test.each(CONVERT_MUTANTS)("a mistake in CONVERT shows: $what", async (mutant) => {
  await givenEntriesOfOneMs();
  await givenTraffic();
  const before = await everything();
  await putBack(connection.redis);
  const folder = await plant(mutant);
  const other = createClient(server.url, 10_000);
  try {
    await other.connect();
    const { run } = createScriptRunner(other, { folder });
    const calls = [...before.keys()].flatMap((name) => convertCallOf(name) ?? []);
    const convertTwice = async () => {
      for (const call of [...calls, ...calls]) await run(convert, call);
    };
    const failed = await convertTwice().catch(String);
    expect(failed ?? "").not.toContain("compiling script");
    expect({ failed, all: await everything() }).not.toEqual({ failed: undefined, all: before });
  } finally {
    other.disconnect();
    await rm(folder, { recursive: true });
  }
});
