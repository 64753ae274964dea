import { join } from "node:path";
import type { Redis } from "ioredis";
import { expect } from "vitest";
import { createTaskIds } from "../../src/durability/task-ids.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { keyRef, META, partitionNames, partitionOf } from "../../src/records/names.ts";
import { itemOf, scriptsOf } from "../../src/redis/script-runner.ts";
import { isCluster, partitionsOf, type RedisNodes } from "../../src/redis/store-facts.ts";
import { admit } from "../../src/scripts/holds.ts";
import type { Run } from "../../src/scripts/script-definition.ts";
import { createClient } from "./client.ts";
import { startClusterNode } from "./cluster-node.ts";
import { soon } from "./soon.ts";
import { ENDPOINT, HOLD_MS, newTask, RETENTION_MS, TIERS } from "./store.ts";

const SLOTS = 16_384;

/** Two real servers that hold a store together, and what belongs to them. */
export interface TwoNodes {
  nodes: RedisNodes;
  stop(): Promise<void>;
}

/**
 * Two servers in cluster mode, one with the even slots and one with the odd ones. They do not know each other: a command
 * that comes to the wrong one is an error, and none is sent on.
 */
export async function startTwoNodes(dir: string): Promise<TwoNodes> {
  const servers = await Promise.all([0, 1].map((at) => startClusterNode(join(dir, String(at)))));
  const clients = await Promise.all(servers.map(({ url }, parity) => clientOf(url, parity)));
  const ofName = (name: string): Redis => clients[slotOf(name) % 2]!;
  const nodes = {
    of: (partition: number) => ofName(partitionNames(partition).ledger),
    ofName,
    all: () => clients,
  };
  return {
    nodes,
    async stop() {
      for (const client of clients) client.disconnect();
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
}

/** Scripts, each at the server of its names. */
const runOn =
  (nodes: RedisNodes): Run =>
  (script, call) =>
    scriptsOf(nodes.ofName(itemOf(script, call).keys[0]!)).run(script, call);

/** A request that is held, and one that is charged: `req_held_NAME`, and `task_NAME` of `req_charged_NAME`. */
export async function givenRequests(
  nodes: RedisNodes,
  { keyId, accountId }: IssuedKey,
  name: string,
): Promise<void> {
  const partitions = await partitionsOf(nodes);
  const key = keyRef(keyId, accountId, partitionOf(accountId, partitions));
  const run = runOn(nodes);
  const tasks = createTaskIds({
    of: (place) => scriptsOf(nodes.of(place)),
    ofName: (name) => ({ command: (work) => work(nodes.ofName(name)) }),
    known: { facts: { partitions, cluster: await isCluster(nodes.ofName(META)) } },
  });
  for (const kind of ["held", "charged"]) {
    const requestId = `req_${kind}_${name}`;
    const generation = {
      requestId,
      key,
      price: 10,
      endpoint: ENDPOINT,
      holdMs: HOLD_MS,
      retentionMs: RETENTION_MS,
    };
    const { outcome } = await run(admit, { generation, tiers: TIERS, notAfterMs: Number.MAX_SAFE_INTEGER });
    expect(outcome).toBe("admitted");
    if (kind === "held") continue;
    const task = newTask(`task_${name}`, { maxAgeMs: 1000 });
    expect(await tasks.bind({ ...generation, task })).toBe("bound");
  }
}

async function clientOf(url: string, parity: number): Promise<Redis> {
  const redis = createClient(url, 10_000);
  // A listener: without one ioredis prints what a test expects.
  redis.on("error", () => undefined);
  await redis.connect();
  await redis.config("SET", "cluster-require-full-coverage", "no");
  const slots = Array.from({ length: SLOTS / 2 }, (_, at) => 2 * at + parity);
  await redis.cluster("ADDSLOTS", ...slots);
  await soon(async () => expect(await redis.cluster("INFO")).toContain("cluster_state:ok"));
  return redis;
}

/** The slot of a name, by the Redis Cluster specification: CRC16 (XMODEM) of its hash tag, if it has one, modulo 16384. */
function slotOf(name: string): number {
  const [, tag = name] = /\{([^}]+)\}/.exec(name) ?? [];
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = (crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff;
  }
  return crc % SLOTS;
}
