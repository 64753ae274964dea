import { join } from "node:path";
import { Redis } from "ioredis";
import type { RedisNodes } from "../../src/redis/store-facts.ts";
import { evenRanges, slotOfName, slotOfPartition } from "../failover/slots.ts";
import { startClusterNode } from "../support/cluster-node.ts";
import { createFleet, type FleetOptions, type RunOptions } from "./fleet.ts";
import { createRedisProxy } from "./redis-proxy.ts";
import { endsWithAll, eventually, loadScripts, type ProxiedWorld } from "./world.ts";

const PRIMARIES = 3;
const PARTITIONS = 6;
const START_MAX_MS = 60_000;
/** Slots of gateways, and one that sweeps apart. */
const USERS_MAX = 8;

/**
 * A fleet over a Redis Cluster, each node behind a fault proxy whose address it announces. The primaries have no replicas:
 * failovers are test/failover's concern. The proxies tell gateways apart by a user per slot.
 */
export async function createClusterWorld(
  options: RunOptions,
  slots: number,
  fleetOptions: FleetOptions = {},
): Promise<ProxiedWorld> {
  const { folder, root } = options;
  const gateways = new Map<string, string>();
  const started = Array.from({ length: PRIMARIES }, (_, at) =>
    startNode(join(folder, `redis-${at}`), root, (user) => gateways.get(user) ?? ""),
  );
  const nodes = await Promise.all(started);
  await joinNodes(nodes);
  const addresses = nodes.map(({ announced }) => `127.0.0.1:${announced}`).join(",");
  const fleet = createFleet(
    options,
    slots,
    { partitions: PARTITIONS, confirmReplicas: 0, ...fleetOptions },
    {
      async listen(gateway) {
        const user = /\d+/.exec(gateway)?.[0] ?? "0";
        gateways.set(`slot${user}`, gateway);
        return `redis+cluster://slot${user}:any@${addresses}`;
      },
      nodes: async () => primariesOf(nodes),
      linkEvents: () =>
        nodes
          .flatMap(({ proxy }) => proxy.events.map(({ keys: _keys, args: _args, ...event }) => event))
          .sort((a, b) => a.atMs - b.atMs),
    },
  );
  const world: ProxiedWorld = endsWithAll({
    ...fleet,
    proxy: {
      steer(hooks) {
        for (const { proxy } of nodes) proxy.steer(hooks);
      },
    },
    async stop() {
      await fleet.stopGateways();
      for (const { proxy, redis } of nodes) {
        proxy.stop();
        redis.disconnect();
      }
      await Promise.all(nodes.map(({ server }) => server.stop()));
    },
  });
  for (const { redis } of nodes) await loadScripts(redis, root);
  await fleet.startAll();
  return world;
}

type Node = Awaited<ReturnType<typeof startNode>>;

async function startNode(dir: string, root: string, gatewayOf: (user: string) => string) {
  // Before the node is there: it announces the proxy's port.
  const proxy = createRedisProxy(0, root);
  const announced = await proxy.listenForUsers(gatewayOf);
  const users = Array.from({ length: USERS_MAX }, (_, at) => [
    "--user",
    ...[`slot${at}`, "on", "nopass", "~*", "&*", "+@all"],
  ]);
  const announcing = ["--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", String(announced)];
  const server = await startClusterNode(dir, [...announcing, ...users.flat()]);
  proxy.pointTo(server.port);
  const redis = new Redis(server.port, "127.0.0.1");
  redis.on("error", () => undefined);
  return { proxy, announced, server, redis };
}

async function joinNodes(nodes: readonly Node[]): Promise<void> {
  const [first] = nodes;
  for (const [at, [from, to]] of evenRanges(PRIMARIES, PARTITIONS).entries()) {
    const { redis, server } = nodes[at]!;
    await redis.call("CLUSTER", "SET-CONFIG-EPOCH", at + 1);
    await redis.cluster("ADDSLOTSRANGE", from, to);
    // At the node itself: the nodes speak to each other past the proxies.
    await first!.redis.call("CLUSTER", "MEET", "127.0.0.1", server.port, server.busPort);
  }
  const isWhole = async (): Promise<boolean> => {
    const infos = await Promise.all(nodes.map(({ redis }) => redis.cluster("INFO")));
    return infos.every(
      (info) => String(info).includes("cluster_state:ok") && String(info).includes("cluster_slots_ok:16384"),
    );
  };
  if (!(await eventually(START_MAX_MS, isWhole))) throw new Error("the nodes do not become a cluster");
}

function primariesOf(nodes: readonly Node[]): RedisNodes {
  const ranges = evenRanges(PRIMARIES, PARTITIONS);
  const ofSlot = (slot: number): Redis => nodes[ranges.findIndex(([, last]) => slot <= last)]!.redis;
  return {
    of: (partition) => ofSlot(slotOfPartition(partition)),
    ofName: (name) => ofSlot(slotOfName(name)),
    all: () => nodes.map(({ redis }) => redis),
  };
}
