import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { type IssuedKey, issueKey } from "../src/operations/keys/issue-key.ts";
import { cliActor } from "../src/records/actor.ts";
import type { RedisNodes } from "../src/redis/store-facts.ts";
import { freePort, startRedis } from "../src/sandbox/redis.ts";
import { evenRanges, PARTITIONS, slotOfName, slotOfPartition } from "../test/failover/slots.ts";
import { GENEROUS } from "./keys.ts";
import { prioritise } from "./processes.ts";

const FORMATION_TIMEOUT_MS = 30_000;
/** Keys made at a time. */
const BATCH = 100;
/** As in production, but for the rewrite, which forks in the middle of whatever is measured then. */
const ARGS = ["--auto-aof-rewrite-percentage", "0"];

/** One server of a store. */
export interface Server {
  port: number;
  pid: number;
  redis: Redis;
}

/** The servers of one store, each a process of its own. */
export interface Topology {
  redisUrl: string;
  primaries: readonly Server[];
  /** The share of all partitions that the busiest primary serves. */
  busiestShare: number;
  replica?: Server;
  /** As operators' commands reach the servers. */
  nodes: RedisNodes;
  stop(): Promise<void>;
}

/** One primary, with a replica if wanted. */
export function startPrimary(folder: string, { withReplica = false } = {}): Promise<Topology> {
  return assemble(folder, async (start) => {
    const primary = await start("primary", []);
    const store = {
      redisUrl: `redis://127.0.0.1:${primary.port}`,
      primaries: [primary],
      busiestShare: 1,
      nodes: nodesOf([primary], () => primary),
    };
    if (!withReplica) return store;
    const args = ["--replicaof", `127.0.0.1 ${primary.port}`, "--repl-diskless-sync-delay", "0"];
    const replica = await start("replica", args);
    await reached("the replica to be in step", async () =>
      (await replica.redis.info("replication")).includes("master_link_status:up"),
    );
    return { ...store, replica };
  });
}

/** A Redis Cluster without replicas, whose primaries have as many partitions as each other, or one more. */
export function startCluster(folder: string, count: number): Promise<Topology> {
  return assemble(folder, async (start) => {
    const primaries: Server[] = [];
    const ranges = evenRanges(count);
    for (const [at, [first, last]] of ranges.entries()) {
      const busPort = await freePort();
      const server = await start(`primary-${at + 1}`, [
        ...["--cluster-enabled", "yes", "--cluster-port", String(busPort)],
      ]);
      await server.redis.call("CLUSTER", "SET-CONFIG-EPOCH", at + 1);
      await server.redis.cluster("ADDSLOTSRANGE", first, last);
      const [seed] = primaries;
      if (seed) await seed.redis.call("CLUSTER", "MEET", "127.0.0.1", server.port, busPort);
      primaries.push(server);
    }
    await reached("the cluster to form", async () => {
      const infos = await Promise.all(primaries.map(({ redis }) => redis.cluster("INFO")));
      return infos.map(String).every((info) => info.includes("cluster_state:ok"));
    });
    const hosts = primaries.map(({ port }) => `127.0.0.1:${port}`).join(",");
    const slots = Array.from({ length: PARTITIONS }, (_, partition) => slotOfPartition(partition));
    const counts = ranges.map(
      ([first, last]) => slots.filter((slot) => slot >= first && slot <= last).length,
    );
    return {
      redisUrl: `redis+cluster://${hosts}`,
      primaries,
      busiestShare: Math.max(...counts) / PARTITIONS,
      nodes: nodesOf(
        primaries,
        (slot) => primaries[ranges.findIndex(([first, last]) => slot >= first && slot <= last)]!,
      ),
    };
  });
}

const nodesOf = (primaries: readonly Server[], ofSlot: (slot: number) => Server): RedisNodes => ({
  of: (partition) => ofSlot(slotOfPartition(partition)).redis,
  ofName: (name) => ofSlot(slotOfName(name)).redis,
  all: () => primaries.map(({ redis }) => redis),
});

type Start = (name: string, args: readonly string[]) => Promise<Server>;

/** Starts servers; what was started is stopped with the topology, or when it does not come about. */
async function assemble(
  folder: string,
  make: (start: Start) => Promise<Omit<Topology, "stop">>,
): Promise<Topology> {
  const stops: (() => Promise<void>)[] = [];
  const stop = async (): Promise<void> => {
    for (const step of stops.splice(0).reverse()) await step();
  };
  const start: Start = async (name, args) => {
    const dir = join(folder, name);
    const { port, pid, ...server } = await startRedis({ dir, persistent: true, args: [...ARGS, ...args] });
    stops.push(server.stop);
    if (pid === undefined) throw new Error("Redis must be a process of this machine to be measured");
    prioritise(pid);
    const redis = new Redis(port, "127.0.0.1");
    stops.push(async () => redis.disconnect());
    return { port, pid, redis };
  };
  try {
    return { ...(await make(start)), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Makes keys, each of its own account with a billion credits, @returns them */
export async function issueKeysOn({ nodes }: Topology, count: number): Promise<string[]> {
  const issued: IssuedKey[] = [];
  while (issued.length < count) {
    const batch = Array.from({ length: Math.min(BATCH, count - issued.length) }, () =>
      issueKey(nodes, { credits: 1_000_000_000, limits: GENEROUS }, cliActor()),
    );
    issued.push(...(await Promise.all(batch)));
  }
  return issued.map(({ key }) => key);
}

async function reached(what: string, condition: () => Promise<boolean>): Promise<void> {
  const deadlineMs = performance.now() + FORMATION_TIMEOUT_MS;
  while (!(await condition())) {
    if (performance.now() > deadlineMs) throw new Error(`waited in vain for ${what}`);
    await delay(50);
  }
}
