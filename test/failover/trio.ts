import type { RedisBinary } from "../../src/sandbox/redis-server.ts";
import type { Links } from "./links.ts";
import { isRunning, type RedisNode, waitFor } from "./node.ts";
import { createNodeSet, dataConfig, type NodeSet } from "./nodes.ts";

/** The Sentinels' name for the primary. */
export const PRIMARY_NAME = "tollgate";
const SENTINELS = 3;
const QUORUM = 2;
const DOWN_AFTER_MS = 1000;
/** Long beside a failover and the return of a node: 10 s for a Sentinel's next look at it, 8 s until it acts. */
const HEALTHY_TIMEOUT_MS = 60_000;

/** One primary, two replicas of equal priority, three Sentinels. */
export interface Trio {
  /** As gateways are told. */
  redisUrl: string;
  nodes: readonly RedisNode[];
  sentinels: readonly RedisNode[];
  links: Links;
  /** The node that most Sentinels name; undefined while they disagree. */
  primary(): Promise<RedisNode | undefined>;
  /** Waits until another node than this one is primary, and takes writes. @returns it */
  promoted(old: RedisNode): Promise<RedisNode>;
  /** Waits until another node than this one is primary, though it may lack replicas and refuse writes. @returns it */
  replaced(old: RedisNode): Promise<RedisNode>;
  /** The Sentinels leave a primary that is away where it is meanwhile, so that it can be back before a failover. */
  withoutFailover(work: () => Promise<void>): Promise<void>;
  /** All nodes run, replicate and are known to all Sentinels. @returns the primary */
  healthy(): Promise<RedisNode>;
  stop(): Promise<void>;
}

interface TrioOptions {
  folder?: string;
  binary?: RedisBinary;
  /** Sentinels look for returned nodes more often than they usually do. Detection and failover are as fast as ever. */
  quickReturn?: boolean;
}

export async function startTrio({ quickReturn = false, ...options }: TrioOptions = {}): Promise<Trio> {
  const set = await createNodeSet(options);
  try {
    const nodes = await addDataNodes(set);
    await Promise.all(nodes.map((node) => node.start()));
    const sentinels = await addSentinels(set, nodes[0]!);
    await Promise.all(sentinels.map((sentinel) => sentinel.start()));
    if (quickReturn) await Promise.all(sentinels.map(lookOften));
    const trio = trioOf(set, nodes, sentinels);
    await trio.healthy();
    return trio;
  } catch (error) {
    await set.stop();
    throw error;
  }
}

async function addDataNodes(set: NodeSet): Promise<RedisNode[]> {
  const nodes: RedisNode[] = [];
  for (const name of ["redis-1", "redis-2", "redis-3"]) {
    const [first] = nodes;
    const replicaOf = first ? [`replicaof 127.0.0.1 ${first.announced}`] : [];
    const config = [...replicaOf, "min-replicas-to-write 1", "min-replicas-max-lag 2"];
    nodes.push(await set.add(name, (ports) => [...dataConfig(ports), ...config]));
  }
  return nodes;
}

async function addSentinels(set: NodeSet, primary: RedisNode): Promise<RedisNode[]> {
  const sentinels: RedisNode[] = [];
  for (let at = 1; at <= SENTINELS; at++) {
    const config = ({ announced }: { announced: number }): string[] => [
      `sentinel announce-ip 127.0.0.1`,
      `sentinel announce-port ${announced}`,
      `sentinel monitor ${PRIMARY_NAME} 127.0.0.1 ${primary.announced} ${QUORUM}`,
      `sentinel down-after-milliseconds ${PRIMARY_NAME} ${DOWN_AFTER_MS}`,
      // A failover that did not succeed is tried again after twice this time, and the next one waits as long.
      `sentinel failover-timeout ${PRIMARY_NAME} 2000`,
      `sentinel parallel-syncs ${PRIMARY_NAME} 2`,
    ];
    sentinels.push(await set.add(`sentinel-${at}`, config, { isSentinel: true }));
  }
  return sentinels;
}

async function lookOften(sentinel: RedisNode): Promise<void> {
  await sentinel.client.call("SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "250");
}

function trioOf(set: NodeSet, nodes: readonly RedisNode[], sentinels: readonly RedisNode[]): Trio {
  const ports = sentinels.map(({ announced }) => `127.0.0.1:${announced}`).join(",");
  const primary = async (): Promise<RedisNode | undefined> => {
    const named = await Promise.all(sentinels.filter(isRunning).map(namedBy));
    return nodes.find(({ announced }) => named.filter((port) => port === announced).length >= QUORUM);
  };
  const findPrimary = async (what: string, isIt: (node: RedisNode) => Promise<boolean>) => {
    let found: RedisNode | undefined;
    await waitFor(what, HEALTHY_TIMEOUT_MS, async () => {
      found = await primary();
      return found !== undefined && (await isIt(found));
    });
    return found!;
  };
  return {
    redisUrl: `redis+sentinel://${ports}/${PRIMARY_NAME}`,
    nodes,
    sentinels,
    links: set.links,
    primary,
    promoted: (old) =>
      findPrimary("a replica to be promoted", async (node) => node !== old && (await takesWrites(node))),
    replaced: (old) =>
      findPrimary("another primary", async (node) => {
        const info = node === old ? undefined : await node.info("replication");
        return info?.role === "master";
      }),
    async withoutFailover(work) {
      await tolerate(sentinels, 600_000);
      try {
        await work();
      } finally {
        await tolerate(sentinels, DOWN_AFTER_MS);
      }
    },
    healthy: () =>
      findPrimary("a primary with two replicas and three Sentinels", async (node) => {
        const seen = await Promise.all(sentinels.map(seesAll));
        return seen.every(Boolean) && (await replicates(node, nodes));
      }),
    stop: () => set.stop(),
  };
}

async function tolerate(sentinels: readonly RedisNode[], downAfterMs: number): Promise<void> {
  const setting = ["down-after-milliseconds", downAfterMs];
  await Promise.all(sentinels.map(({ client }) => client.call("SENTINEL", "SET", PRIMARY_NAME, ...setting)));
}

/** The port of the primary that a Sentinel names. */
async function namedBy(sentinel: RedisNode): Promise<number | undefined> {
  const address = await sentinel.ask("SENTINEL", "get-master-addr-by-name", PRIMARY_NAME);
  return Array.isArray(address) ? Number(address[1]) : undefined;
}

/** A Sentinel knows the others and all replicas, and none of them is away. */
async function seesAll(sentinel: RedisNode): Promise<boolean> {
  const replicas = await sentinel.ask("SENTINEL", "replicas", PRIMARY_NAME);
  const others = await sentinel.ask("SENTINEL", "sentinels", PRIMARY_NAME);
  const flags = (list: unknown): string[] =>
    Array.isArray(list) ? list.map((one) => (one as string[])[(one as string[]).indexOf("flags") + 1]!) : [];
  const all = [...flags(replicas), ...flags(others)];
  return (
    all.length === 2 + SENTINELS - 1 &&
    all.every((flag) => !flag.includes("down") && !flag.includes("disconnected"))
  );
}

async function replicates(primary: RedisNode, nodes: readonly RedisNode[]): Promise<boolean> {
  const { role, min_slaves_good_slaves: good } = (await primary.info("replication")) ?? {};
  if (role !== "master" || Number(good) !== nodes.length - 1) return false;
  const others = nodes.filter((node) => node !== primary);
  const infos = await Promise.all(others.map((node) => node.info("replication")));
  return infos.every(
    (info) =>
      info?.role === "slave" &&
      info.master_link_status === "up" &&
      Number(info.master_port) === primary.announced,
  );
}

/** A probe that leaves nothing behind. */
const takesWrites = async (node: RedisNode): Promise<boolean> =>
  (await node.ask("SET", "rig:probe", "1", "PX", "1000")) === "OK";
