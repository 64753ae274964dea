import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { trimLedger } from "../../src/archive/trimming.ts";
import { readCheckpoint } from "../../src/records/checkpoints.ts";
import { LEDGER_START, readLedger } from "../../src/records/ledger-entries.ts";
import { claimName, claimText, META, partitionOf } from "../../src/records/names.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { oneNode, partitionsOf, type RedisNodes, readFacts } from "../../src/redis/store-facts.ts";
import { createClient } from "../support/client.ts";
import { writeEntries } from "../support/ledger-entries.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { createStage, RETENTION_MS, type TestConnection, taskOf, times } from "../support/store.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, LAYOUT_MUTANTS } from "./mutants.ts";

const RULES = { partitions: 64, allowNoPersistence: true };

// Layouts are a store's, so these tests have one of their own.

let server: OwnStore;
let connection: TestConnection;
let nodes: RedisNodes;
beforeAll(async () => {
  server = await openOwnStore(RULES.partitions);
  connection = server.connection;
  nodes = oneNode(connection.redis);
});
beforeEach(async () => {
  await server.empty();
});
afterAll(() => server?.stop());

const namesOf = (pattern: string): Promise<string[]> => connection.redis.keys(pattern);

describe("the layout of a store", () => {
  test("is 1 for a new one, and stays", async () => {
    await connection.redis.del(META);
    await readFacts(nodes, RULES);
    expect(await connection.redis.hget(META, "layout")).toBe("1");
    await readFacts(nodes, RULES);
  });

  // Guarantee: no version writes to a store in a way that it does not know.
  test.each([
    [
      "2",
      "the store has layout 2, and this version of Tollgate uses layout 1 alone; use the version that wrote it",
    ],
    ["", "the store has layout , and"],
    [undefined, "the store has no layout, and this version of Tollgate uses layout 1 alone"],
    ["restoring", "is being restored from the archive; wait until `tollgate archive restore` has ended"],
  ])("is refused in plain words if it is %s, by gateways and commands", async (layout, words) => {
    if (layout !== undefined) await connection.redis.hset(META, "layout", layout);
    else await connection.redis.hdel(META, "layout");
    await expect(readFacts(nodes, RULES)).rejects.toThrow(words);
    await expect(partitionsOf(nodes)).rejects.toThrow(words);
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
    one.clock.nowMs += 2 * RETENTION_MS;
    expect(await one.sweeps.collect(3, 0, 10)).toMatchObject({ collected: 1 });
    expect(await namesOf(`*${taskId}`)).toEqual([]);
    expect(await two.bind(second, taskId)).toBe("bound");
  });
});

/** The ids in the checkpoint of an account with 12 entries of one millisecond, of which all but the last leave; and of all. */
async function linesOfOneMs({ redis, scripts }: Pick<TestConnection, "redis" | "scripts">) {
  const partition = partitionOf("fast", 64);
  const given = times(12, (at) => ({ accountId: "fast", amount: at + 1, atMs: 1_790_000_000_000 }));
  const ids = await writeEntries(redis, partition, given);
  const archivedTo = (await readLedger(redis, partition, LEDGER_START)).at(-1)!;
  await trimLedger(scripts.run, { partition, archivedTo, keepMs: 0 });
  return { ids, tail: (await readCheckpoint(redis, partition, "fast"))!.tail };
}

test("a checkpoint's lines tell entries of one millisecond apart", async () => {
  const { ids, tail } = await linesOfOneMs(connection);
  expect(tail.map(({ streamId }) => streamId)).toEqual(ids.slice(1, 11).toReversed());
  expect(tail.map(({ balanceAfter }) => balanceAfter)).toEqual([66, 55, 45, 36, 28, 21, 15, 10, 6, 3]);
});

/** Binds where the gateway has taken the claim before, as on the Redis Cluster from which the store came. */
async function bindClaimedBefore({ redis, scripts }: Pick<TestConnection, "redis" | "scripts">) {
  const stage = createStage(connection, { partition: 3 });
  const owner = stage.request(await stage.givenKey());
  await stage.admit(owner);
  await redis.set(claimName(taskOf(owner)), claimText(owner.requestId, 3));
  const { script, item } = await stage.onItsWay(() => stage.bind(owner));
  return (await scripts.send(script, [item]))[0];
}

test("a request keeps the task id that it has claimed already", async () => {
  expect(await bindClaimedBefore(connection)).toEqual(["bound", expect.any(Number)]);
});

test.each(inShare(LAYOUT_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  const other = createClient(server.url, 10_000);
  try {
    await other.connect();
    const to = { redis: other, scripts: createScriptRunner(other, { folder }) };
    const { ids, tail } = await linesOfOneMs(to);
    const bound = (await bindClaimedBefore(to)) as string[];
    expect([bound[0], ...tail.map(({ streamId }) => streamId)]).not.toEqual([
      "bound",
      ...ids.slice(1, 11).toReversed(),
    ]);
  } finally {
    other.disconnect();
  }
});
