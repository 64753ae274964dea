import { setTimeout as pause } from "node:timers/promises";
import type { RedisBinary } from "../../src/sandbox/redis-server.ts";
import type { Links } from "./links.ts";
import { fieldsOf, isRunning, type RedisNode, waitFor } from "./node.ts";
import { createNodeSet, dataConfig, type NodeSet, type Ports } from "./nodes.ts";
import { evenRanges, PARTITIONS, SLOTS, type SlotRange, slotOfPartition } from "./slots.ts";

const PRIMARIES = 3;
const NODE_TIMEOUT_MS = 1000;
/** Longer than a busy machine lets a node stand still. */
const PATIENT_TIMEOUT_MS = 15_000;
const HEALTHY_TIMEOUT_MS = 60_000;

/** Three primaries with a replica each. */
export interface Cluster {
  /** As gateways are told. */
  redisUrl: string;
  nodes: readonly RedisNode[];
  links: Links;
  /** Who owns a slot now, as primaryOf tells it of a partition. */
  owners(): Promise<(slot: number) => RedisNode | undefined>;
  /** The node that owns the partition by the newest claim of a running node; undefined while nobody says so. */
  primaryOf(partition: number): Promise<RedisNode | undefined>;
  /** Waits until another node than this one owns the partition. @returns it */
  promoted(partition: number, old: RedisNode): Promise<RedisNode>;
  /** The node that replicates this one. */
  replicaOf(primary: RedisNode): Promise<RedisNode | undefined>;
  /** Waits until every slot has an owner in the eyes of all nodes that run and are not cut off. */
  covered(cutOff?: RedisNode): Promise<void>;
  /** The nodes leave a primary that is away where it is meanwhile, so that it can be back before a failover. */
  withoutFailover(work: () => Promise<void>): Promise<void>;
  /**
   * Moves some of the partitions of a primary to another one, name by name.
   * @param holdMs how long they are on their way before the first name moves
   */
  movePartitions(from: RedisNode, holdMs: number): Promise<void>;
  /** Waits until all nodes run, every slot is owned and every primary has its replica. */
  healthy(): Promise<void>;
  stop(): Promise<void>;
}

interface ClusterOptions {
  folder?: string;
  binary?: RedisBinary;
  /** For tests in which no node is struck: a node that stands still for a second has no successor. */
  patient?: boolean;
}

export async function startCluster({ patient = false, ...options }: ClusterOptions = {}): Promise<Cluster> {
  const set = await createNodeSet(options);
  try {
    const nodes: RedisNode[] = [];
    const ports: Ports[] = [];
    for (let at = 1; at <= 2 * PRIMARIES; at++) {
      const note = (own: Ports): readonly string[] => {
        ports.push(own);
        return clusterConfig(own);
      };
      nodes.push(await set.add(`redis-${at}`, note, { clustered: true }));
    }
    await Promise.all(nodes.map((node) => node.start()));
    await join(nodes, ports);
    const cluster = clusterOf(set, nodes);
    await cluster.healthy();
    if (patient) await tolerate(nodes, PATIENT_TIMEOUT_MS);
    return cluster;
  } catch (error) {
    await set.stop();
    throw error;
  }
}

const clusterConfig = (ports: Ports): string[] => [
  ...dataConfig(ports),
  "cluster-enabled yes",
  // Always said: the default, port + 10000, is beyond 65535 for many a free port.
  `cluster-port ${ports.bus}`,
  "cluster-announce-ip 127.0.0.1",
  `cluster-announce-port ${ports.announced}`,
  `cluster-announce-bus-port ${ports.announcedBus}`,
  `cluster-node-timeout ${NODE_TIMEOUT_MS}`,
  // One primary that is away makes its own slots unavailable only.
  "cluster-require-full-coverage no",
];

/** The first nodes become primaries of even shares of the partitions, the others their replicas. */
async function join(nodes: readonly RedisNode[], ports: readonly Ports[]): Promise<void> {
  const ranges = evenRanges(PRIMARIES);
  for (const [at, { client }] of nodes.entries()) await client.call("CLUSTER", "SET-CONFIG-EPOCH", at + 1);
  await Promise.all(
    ranges.map(([first, last], at) => nodes[at]!.client.cluster("ADDSLOTSRANGE", first, last)),
  );
  let askedMs = Number.NEGATIVE_INFINITY;
  await waitFor("all nodes to know each other", HEALTHY_TIMEOUT_MS, async () => {
    // Again: a node drops a handshake that takes more than a second, as it may on a busy machine.
    if (performance.now() - askedMs > 2000) {
      askedMs = performance.now();
      for (const { announced, announcedBus } of ports.slice(1))
        await nodes[0]!.client.call("CLUSTER", "MEET", "127.0.0.1", announced, announcedBus);
    }
    const views = await Promise.all(nodes.map(viewOf));
    return views.every((view) => view.length === nodes.length && view.every(({ isMet }) => isMet));
  });
  const ids = await Promise.all(nodes.map(({ client }) => client.cluster("MYID")));
  for (const [at, { client }] of nodes.slice(PRIMARIES).entries()) {
    await client.call("CLUSTER", "REPLICATE", String(ids[at]));
  }
}

function clusterOf(set: NodeSet, nodes: readonly RedisNode[]): Cluster {
  const addresses = nodes.map(({ announced }) => `127.0.0.1:${announced}`).join(",");
  const cluster: Cluster = {
    redisUrl: `redis+cluster://${addresses}`,
    nodes,
    links: set.links,
    async owners() {
      const claims = (await claimsOf(nodes)).sort((a, b) => b.epoch - a.epoch);
      return (slot) => claims.find(({ ranges }) => ranges.some(contains(slot)))?.node;
    },
    primaryOf: async (partition) => (await cluster.owners())(slotOfPartition(partition)),
    covered: (cutOff) =>
      waitFor("every slot to have an owner", HEALTHY_TIMEOUT_MS, () =>
        isCovered(nodes.filter((node) => node !== cutOff)),
      ),
    async promoted(partition, old) {
      let found: RedisNode | undefined;
      await waitFor(`partition ${partition} to have another primary`, HEALTHY_TIMEOUT_MS, async () => {
        found = await cluster.primaryOf(partition);
        return found !== undefined && found !== old;
      });
      return found!;
    },
    async replicaOf(primary) {
      const infos = await Promise.all(nodes.map((node) => node.info("replication")));
      return nodes.find((_, at) => infos[at]?.master_port === String(primary.announced));
    },
    async withoutFailover(work) {
      await tolerate(nodes, 600_000);
      try {
        await work();
      } finally {
        await tolerate(nodes, NODE_TIMEOUT_MS);
      }
    },
    async movePartitions(from, holdMs) {
      const claims = await claimsOf(nodes);
      const own = claims.find(({ node }) => node === from);
      const to = claims.find(({ node, ranges }) => node !== from && ranges.length > 0);
      if (!own || !to) throw new Error(`${from.name} has no partitions to move`);
      const slots = PARTITION_SLOTS.filter((slot) => own.ranges.some(contains(slot)));
      const moved = slots.slice(0, MOVED);
      const markings = moved.map((slot) => markMoving(slot, from, to.node));
      await Promise.all(markings);
      await pause(holdMs);
      for (const slot of moved) await moveSlot(slot, from, to.node);
      // Slots that only the new owner knows of are lost with it.
      await waitFor("all nodes to know who owns the moved slots", HEALTHY_TIMEOUT_MS, async () => {
        const id = await to.node.ask("CLUSTER", "MYID");
        const views = await Promise.all(nodes.map(viewOf));
        return views.every((view) =>
          view.some((seen) => seen.id === id && moved.every((slot) => seen.ranges.some(contains(slot)))),
        );
      });
    },
    healthy: () => awaitHealthy(nodes),
    stop: () => set.stop(),
  };
  return cluster;
}

/** Of the partitions of a primary, which has about 21. */
const MOVED = 8;
const PARTITION_SLOTS = Array.from({ length: PARTITIONS }, (_, partition) => slotOfPartition(partition));
/** Names that are moved at a time. */
const PAGE = 50;
const MIGRATE_MS = 5000;
/** Until then, nodes find out by themselves who owns what. */
const FIX_AFTER_MS = 5000;

async function markMoving(slot: number, { client: source }: RedisNode, { client: target }: RedisNode) {
  const [fromId, toId] = await Promise.all([source.cluster("MYID"), target.cluster("MYID")]);
  await target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", String(fromId));
  await source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", String(toId));
}

async function moveSlot(slot: number, { client: source }: RedisNode, to: RedisNode): Promise<void> {
  const toId = await to.client.cluster("MYID");
  const deadline = Date.now() + HEALTHY_TIMEOUT_MS;
  for (;;) {
    const names = (await source.call("CLUSTER", "GETKEYSINSLOT", slot, PAGE)) as string[];
    if (names.length === 0) break;
    // Names that have not moved, such as on a busy machine, are tried again.
    const moving = source.call("MIGRATE", "127.0.0.1", to.port, "", 0, MIGRATE_MS, "KEYS", ...names);
    await moving.catch((error: Error) => {
      if (Date.now() > deadline) throw error;
      return pause(50);
    });
  }
  const owned = ["SETSLOT", slot, "NODE", String(toId)];
  for (const client of [to.client, source]) await client.call("CLUSTER", ...owned);
}

async function tolerate(nodes: readonly RedisNode[], timeoutMs: number): Promise<void> {
  await Promise.all(
    nodes.filter(isRunning).map(({ client }) => client.config("SET", "cluster-node-timeout", timeoutMs)),
  );
}

/** One line of CLUSTER NODES. */
interface Seen {
  id: string;
  isMyself: boolean;
  isPrimary: boolean;
  /** False while the two shake hands. */
  isMet: boolean;
  epoch: number;
  ranges: SlotRange[];
}

async function viewOf(node: RedisNode): Promise<Seen[]> {
  const text = await node.ask("CLUSTER", "NODES");
  if (typeof text !== "string") return [];
  return text
    .trim()
    .split("\n")
    .map((line) => {
      const [id = "", , flags = "", , , , epoch, , ...slots] = line.split(" ");
      return {
        id,
        isMyself: flags.includes("myself"),
        isPrimary: flags.includes("master"),
        isMet: !/handshake|noaddr/.test(flags),
        epoch: Number(epoch),
        // A slot that is moving is in brackets.
        ranges: slots.filter((slot) => /^\d/.test(slot)).map(rangeOf),
      };
    });
}

function rangeOf(text: string): SlotRange {
  const [first, last = first] = text.split("-").map(Number);
  return [first!, last!];
}

const contains =
  (slot: number) =>
  ([first, last]: SlotRange): boolean =>
    first <= slot && slot <= last;

/** The slots that each running node claims as its own. */
async function claimsOf(nodes: readonly RedisNode[]) {
  const running = nodes.filter(isRunning);
  const views = await Promise.all(running.map(viewOf));
  return views.flatMap((view, at) => {
    const own = view.find(({ isMyself, isPrimary }) => isMyself && isPrimary);
    return own ? [{ node: running[at]!, epoch: own.epoch, ranges: own.ranges }] : [];
  });
}

async function awaitHealthy(nodes: readonly RedisNode[]): Promise<void> {
  const fixAtMs = Date.now() + FIX_AFTER_MS;
  await waitFor("six nodes that replicate and cover all slots", HEALTHY_TIMEOUT_MS, async () => {
    if (!nodes.every(isRunning)) return false;
    if (!(await isCovered(nodes))) {
      if (Date.now() > fixAtMs) await addForgotten(nodes);
      return false;
    }
    const infos = await Promise.all(nodes.map((node) => node.info("replication")));
    const primaries = infos.filter((info) => info?.role === "master");
    const replicas = infos.filter((info) => info?.master_link_status === "up");
    return (
      primaries.length === PRIMARIES &&
      primaries.every((info) => info?.connected_slaves === "1") &&
      replicas.length === nodes.length - PRIMARIES
    );
  });
}

/**
 * As `redis-cli --cluster fix` does by hand: a node that was promoted shortly after slots had moved may know no owner of a slot that
 * most others know to be its own, as seen once in Redis 7.0.
 */
async function addForgotten(nodes: readonly RedisNode[]): Promise<void> {
  const views = await Promise.all(nodes.map(viewOf));
  for (const [at, view] of views.entries()) {
    const id = view.find(({ isMyself }) => isMyself)?.id;
    const isOwned = (slot: number): boolean => view.some(({ ranges }) => ranges.some(contains(slot)));
    const others = views.filter((other) => other !== view);
    const agreed = (slot: number): number =>
      others.filter((other) => other.some((seen) => seen.id === id && seen.ranges.some(contains(slot))))
        .length;
    const isMine = (slot: number): boolean => agreed(slot) > others.length / 2;
    const forgotten = Array.from({ length: SLOTS }, (_, slot) => slot).filter(
      (slot) => !isOwned(slot) && isMine(slot),
    );
    if (forgotten.length === 0) continue;
    console.log(`${nodes[at]!.name} has forgotten that it owns ${forgotten.join(", ")}; added by hand`);
    await nodes[at]!.ask("CLUSTER", "ADDSLOTS", ...forgotten.map(String));
  }
}

/** All running nodes find the cluster usable, and agree that every slot has an owner that is not away. */
async function isCovered(nodes: readonly RedisNode[]): Promise<boolean> {
  const texts = await Promise.all(nodes.filter(isRunning).map((node) => node.ask("CLUSTER", "INFO")));
  return texts.every((text) => {
    const { cluster_state, cluster_slots_ok } = typeof text === "string" ? fieldsOf(text) : {};
    return cluster_state === "ok" && cluster_slots_ok === String(SLOTS);
  });
}
