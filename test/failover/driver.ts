import { setTimeout as pause } from "node:timers/promises";
import { Redis } from "ioredis";
import type { RedisNodes } from "../../src/store/nodes.ts";
import { startCluster } from "./cluster.ts";
import type { Links } from "./links.ts";
import { isRunning, type RedisNode } from "./node.ts";
import { startPair } from "./pair.ts";
import { SLOTS, slotOfName, slotOfPartition } from "./slots.ts";
import { startTrio } from "./trio.ts";

export const TOPOLOGIES = ["server", "trio", "cluster"] as const;
export type Topology = (typeof TOPOLOGIES)[number];

/**
 * What befalls the primary of a partition. kill: SIGKILL; pause: SIGSTOP; cut: nothing reaches it or comes from it; lag:
 * a replica has received nothing for a while when the primary is killed; loss: SIGKILL, and a start with a shorter
 * append-only file before anybody is promoted; replica: SIGSTOP of its replica, so that nothing is confirmed.
 */
export type Fault = "kill" | "pause" | "cut" | "lag" | "loss" | "replica";

/** A fault under way. */
export interface Strike {
  /** The node that it befell. */
  victim: string;
  /** When it did, Unix ms. */
  atMs: number;
  /** The node is back, the link healed. */
  end(): Promise<void>;
}

/** The store of a campaign: where gateways find it, what befalls it, and what it holds. */
export interface Driver {
  topology: Topology;
  redisUrl: string;
  /** Whether another node takes over; else a fault lasts until it is ended. */
  failsOver: boolean;
  faults: readonly Fault[];
  strike(fault: Fault, partition: number): Promise<Strike>;
  /** Waits until all nodes run, replicate and are in step. */
  healthy(): Promise<void>;
  /** The primaries of this moment, to be read from past all relays. */
  nodes(): Promise<RedisNodes>;
  stop(): Promise<void>;
}

/** How long a replica has received nothing when its primary is killed. */
const LAG_MS = 500;
/** Off the append-only file: the last charges. */
const LOST_BYTES = 4096;

/** What the topologies have in common. */
interface Servers {
  redisUrl: string;
  links: Links;
  /** Who owns a slot now. */
  owners(): Promise<(slot: number) => RedisNode | undefined>;
  replicasOf(primary: RedisNode): Promise<RedisNode[]>;
  withoutFailover(work: () => Promise<void>): Promise<void>;
  healthy(): Promise<unknown>;
  stop(): Promise<void>;
}

export async function startDriver(topology: Topology, folder: string): Promise<Driver> {
  switch (topology) {
    case "server": {
      const pair = await startPair({ folder });
      const servers = {
        ...pair,
        owners: async () => () => pair.primary,
        replicasOf: async () => [pair.replica],
        withoutFailover: (work: () => Promise<void>) => work(),
      };
      // A server that comes back with older data is refused until an operator accepts it: the fault campaign's `stores`.
      return driverOf(topology, servers, ["kill", "pause", "cut", "replica"]);
    }
    case "trio": {
      const trio = await startTrio({ folder, quickReturn: true });
      const servers = {
        ...trio,
        owners: async () => {
          const primary = await trio.primary();
          return () => primary;
        },
        replicasOf: async (primary: RedisNode) => trio.nodes.filter((node) => node !== primary),
      };
      return driverOf(topology, servers, ["kill", "pause", "cut", "lag", "loss", "replica"]);
    }
    case "cluster": {
      const cluster = await startCluster({ folder });
      const servers = {
        ...cluster,
        replicasOf: async (primary: RedisNode) => [(await cluster.replicaOf(primary))!],
      };
      return driverOf(topology, servers, ["kill", "pause", "cut", "lag", "loss", "replica"]);
    }
  }
}

function driverOf(topology: Topology, servers: Servers, faults: readonly Fault[]): Driver {
  const readers = new Map<RedisNode, Redis>();
  const reader = (node: RedisNode): Redis => {
    const known = readers.get(node) ?? new Redis(node.port, "127.0.0.1");
    if (!readers.has(node)) known.on("error", () => undefined);
    readers.set(node, known);
    return known;
  };
  return {
    topology,
    redisUrl: servers.redisUrl,
    failsOver: topology !== "server",
    faults,
    async strike(fault, partition) {
      const victim = (await servers.owners())(slotOfPartition(partition));
      if (!victim || !isRunning(victim)) throw new Error(`partition ${partition} has no primary to strike`);
      return { victim: victim.name, ...(await strikeAt(servers, victim, fault)) };
    },
    async healthy() {
      await servers.healthy();
    },
    async nodes() {
      const ownerOf = await servers.owners();
      const clientOf = (slot: number): Redis => {
        const node = ownerOf(slot);
        if (!node) throw new Error(`slot ${slot} has no primary`);
        return reader(node);
      };
      const all = new Set(Array.from({ length: SLOTS }, (_, slot) => clientOf(slot)));
      return {
        of: (partition) => clientOf(slotOfPartition(partition)),
        ofName: (name) => clientOf(slotOfName(name)),
        all: () => [...all],
      };
    },
    async stop() {
      for (const redis of readers.values()) redis.disconnect();
      await servers.stop();
    },
  };
}

async function strikeAt(
  servers: Servers,
  victim: RedisNode,
  fault: Fault,
): Promise<Pick<Strike, "atMs" | "end">> {
  const { links } = servers;
  let atMs = Date.now();
  switch (fault) {
    case "kill":
      await victim.kill();
      return { atMs, end: () => victim.start() };
    case "pause":
      victim.pause();
      return { atMs, end: async () => victim.resume() };
    case "cut":
      links.cut(victim.name);
      return { atMs, end: async () => links.heal(victim.name) };
    case "replica": {
      const [replica] = await servers.replicasOf(victim);
      replica!.pause();
      return { atMs, end: async () => replica!.resume() };
    }
    case "lag": {
      const replicas = await servers.replicasOf(victim);
      for (const { name } of replicas) links.cut(name, { from: [victim.name] });
      await pause(LAG_MS);
      atMs = Date.now();
      await victim.kill();
      for (const { name } of replicas) links.heal(name, { discard: true });
      return { atMs, end: () => victim.start() };
    }
    case "loss":
      await servers.withoutFailover(async () => {
        await victim.kill();
        victim.truncate(LOST_BYTES);
        await victim.start();
      });
      return { atMs, end: async () => undefined };
  }
}
