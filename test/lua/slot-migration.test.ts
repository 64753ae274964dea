import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { createClient } from "../../src/store/client.ts";
import { partitionNames } from "../../src/store/names.ts";
import { startClusterNode } from "../support/cluster-node.ts";
import { soon } from "../support/soon.ts";
import {
  createStage,
  newTask,
  openConnection,
  openStore,
  type Stage,
  type TestConnection,
  taskOf,
} from "../support/store.ts";

// A slot that migrates key by key: the node that has it refuses each command on a name that it does not have, new names
// included, also in the middle of a script. Two real nodes; the first has all slots.

const PARTITION = 7;

let dir: string;
const nodes: Awaited<ReturnType<typeof startClusterNode>>[] = [];
let clients: Redis[] = [];
let connection: TestConnection;
let stage: Stage;
let slot: number;
let otherNodeId: string;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "tollgate-migration-"));
  for (const name of ["first", "second"]) nodes.push(await startClusterNode(join(dir, name)));
  clients = nodes.map(({ url }) => createClient(url, 10_000));
  for (const client of clients) await client.connect();
  const [first, second] = clients as [Redis, Redis];
  await first.cluster("ADDSLOTSRANGE", 0, 16_383);
  const { port, busPort } = nodes[1]!;
  await first.call("CLUSTER", "MEET", "127.0.0.1", port, busPort);
  otherNodeId = String(await second.cluster("MYID"));
  await soon(async () => {
    expect(await first.cluster("INFO")).toContain("cluster_state:ok");
    expect(String(await first.call("CLUSTER", "NODES"))).toMatch(
      new RegExp(`^${otherNodeId} .* connected`, "m"),
    );
  });
  slot = Number(await first.cluster("KEYSLOT", partitionNames(PARTITION).done));
  connection = await openConnection(nodes[0]!.url);
  stage = createStage(connection, { partition: PARTITION });
});
afterEach(() => endMigration());
afterAll(async () => {
  await connection?.close();
  for (const client of clients) client.disconnect();
  for (const node of nodes) await node.stop();
  await rm(dir, { recursive: true, force: true });
});

const beginMigration = () => clients[0]!.cluster("SETSLOT", slot, "MIGRATING", otherNodeId);
const endMigration = async () => void (await clients[0]!.cluster("SETSLOT", slot, "STABLE"));

// Guarantee: a charge is dropped only when its script would fail again.
test("a charge that meets a migrating slot is kept, and posted once the slot is stable", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const store = openStore(connection);
  const generation = stage.request(key, { retentionMs: 3_600_000 });
  expect(await store.admit(generation, stage.tiers)).toMatchObject({ outcome: "admitted" });
  await beginMigration();
  const binds = vi.spyOn(connection.redis as unknown as { "tollgate:bind"(): unknown }, "tollgate:bind");
  expect(await store.bind(generation, newTask(taskOf(generation)))).toBeUndefined();
  // The request's own call, and the first one of the outbox.
  await soon(() => expect(binds.mock.settledResults[1]).toMatchObject({ type: "fulfilled" }));
  binds.mockRestore();
  await endMigration();
  await connection.breaker.closed();
  expect(await store.credits(key, stage.tiers)).toMatchObject({ balance: 90, totalUsed: 10 });
});

// Guarantee: an ADMIT that was answered 503 leaves no hold and no entry in the window behind.
test("an admission that meets a migrating slot is voided, and never runs later", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const store = openStore(connection);
  const generation = stage.request(key);
  await beginMigration();
  const admitted = store.admit(generation, stage.tiers);
  await expect(admitted).rejects.toThrow(/non local key/);
  expect(connection.breaker.isOpen()).toBe(true);
  await endMigration();
  await connection.breaker.closed();
  expect(await stage.requestRecord(generation)).toMatchObject({ state: "void", reason: "unsent" });
  expect(await store.admit(generation, stage.tiers)).toMatchObject({ outcome: "void" });
  expect(await store.credits(key, stage.tiers)).toMatchObject({ balance: 100, state: { active: 0 } });
});
