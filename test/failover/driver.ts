import { Redis } from "ioredis";
import type { RedisNodes } from "../../src/redis/store-facts.ts";
import type { RedisBinary } from "../../src/sandbox/redis-server.ts";
import type { LinkEvent } from "../fault/history.ts";
import { ROOT } from "../fault/world.ts";
import { startCluster } from "./cluster.ts";
import { isRunning, type RedisNode } from "./node.ts";
import { startPair } from "./pair.ts";
import { SLOTS, slotOfName, slotOfPartition } from "./slots.ts";
import { type Fault, type Servers, type Strike, strikeAt } from "./strikes.ts";
import { startTrio } from "./trio.ts";
import { recordScripts } from "./wiretap.ts";

export const TOPOLOGIES = ["server", "trio", "cluster"] as const;
export type Topology = (typeof TOPOLOGIES)[number];

const FAILING_OVER = [
  ...(["kill", "pause", "cut", "split", "lag, kill", "lag, pause", "lag, cut"] as const),
  ...(["loss", "replica", "reset"] as const),
];

/** Faults of each topology. */
export const FAULTS_OF: Record<Topology, readonly Fault[]> = {
  // A server that comes back with older data is refused until an operator accepts it: the fault campaign's `stores`.
  server: ["kill", "pause", "cut", "replica", "reset"],
  trio: [...FAILING_OVER, "stale"],
  cluster: [...FAILING_OVER, "move", "move slowly"],
};

/** The store of a campaign: where gateways find it, what befalls it, and what it holds. */
export interface Driver {
  redisUrl: string;
  /** True if another node takes over; otherwise a fault lasts until it is ended. */
  failsOver: boolean;
  strike(fault: Fault, partition: number): Promise<Strike>;
  /** Waits until all nodes run, replicate and are in step. */
  healthy(): Promise<void>;
  /** Meanwhile no primary is replaced. */
  withoutFailover(work: () => Promise<void>): Promise<void>;
  /** The primaries of this moment, to be read from past all relays. */
  nodes(): Promise<RedisNodes>;
  /** The scripts that gateways have called. */
  linkEvents(): readonly LinkEvent[];
  stop(): Promise<void>;
}

interface DriverOptions {
  /** Of the data; kept afterwards. */
  folder: string;
  /** The source tree whose gateways are run. */
  root?: string;
  binary?: RedisBinary | undefined;
}

export async function startDriver(
  topology: Topology,
  { root = ROOT, folder, binary }: DriverOptions,
): Promise<Driver> {
  const rig = { folder, ...(binary ? { binary } : {}) };
  return driverOf(await serversOf(topology, rig), root);
}

async function serversOf(
  topology: Topology,
  rig: { folder: string; binary?: RedisBinary },
): Promise<Servers> {
  switch (topology) {
    case "server": {
      const pair = await startPair(rig);
      return {
        ...pair,
        names: [pair.primary.name, pair.replica.name],
        failsOver: false,
        owners: async () => () => pair.primary,
        replicasOf: async () => [pair.replica],
        replaced: () => Promise.reject(new Error("nobody fails over here")),
        withoutFailover: (work) => work(),
      };
    }
    case "trio": {
      const trio = await startTrio({ ...rig, quickReturn: true });
      return {
        ...trio,
        names: [...trio.nodes, ...trio.sentinels].map(({ name }) => name),
        failsOver: true,
        owners: async () => {
          const primary = await trio.primary();
          return () => primary;
        },
        replicasOf: async (primary) => trio.nodes.filter((node) => node !== primary),
      };
    }
    case "cluster": {
      const cluster = await startCluster(rig);
      return {
        ...cluster,
        names: cluster.nodes.map(({ name }) => name),
        failsOver: true,
        replaced: (old) => cluster.covered(old),
        replicasOf: async (primary) => [(await cluster.replicaOf(primary))!],
      };
    }
  }
}

function driverOf(servers: Servers, root: string): Driver {
  const readers = new Map<RedisNode, Redis>();
  const reader = (node: RedisNode): Redis => {
    const known = readers.get(node) ?? new Redis(node.port, "127.0.0.1");
    if (!readers.has(node)) known.on("error", () => undefined);
    readers.set(node, known);
    return known;
  };
  const isData = (name: string): boolean => !name.startsWith("sentinel");
  const events = recordScripts({ links: servers.links, isData, root });
  return {
    redisUrl: servers.redisUrl,
    failsOver: servers.failsOver,
    linkEvents: () => events,
    async strike(fault, partition) {
      const victim = (await servers.owners())(slotOfPartition(partition));
      if (!victim || !isRunning(victim)) throw new Error(`partition ${partition} has no primary to strike`);
      return strikeAt(servers, victim, fault);
    },
    async healthy() {
      await servers.healthy();
    },
    withoutFailover: servers.withoutFailover,
    async nodes() {
      const ownerOf = await servers.owners();
      const clientOf = (slot: number): Redis => {
        const node = ownerOf(slot);
        if (!node) throw new Error(`slot ${slot} has no primary`);
        return reader(node);
      };
      return {
        of: (partition) => clientOf(slotOfPartition(partition)),
        ofName: (name) => clientOf(slotOfName(name)),
        all: () => [...new Set(Array.from({ length: SLOTS }, (_, slot) => clientOf(slot)))],
      };
    },
    async stop() {
      for (const redis of readers.values()) redis.disconnect();
      await servers.stop();
    },
  };
}
