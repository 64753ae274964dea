import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { portIfFree, type RedisBinary } from "../../src/sandbox/redis-server.ts";
import { type HeldPort, holdPort } from "../support/held-port.ts";
import { redisBinary } from "../support/redis-binary.ts";
import { createLinks, type Links } from "./links.ts";
import { createNode, type RedisNode } from "./node.ts";

/** The ports of a node. */
export interface Ports {
  name: string;
  /** Where its connections come from. */
  source: string;
  announced: number;
  /** Of the cluster's bus; 0 where there is none. */
  bus: number;
  announcedBus: number;
}

export interface NodeSet {
  links: Links;
  /** Starts nothing. */
  add(name: string, config: (ports: Ports) => readonly string[], options?: AddOptions): Promise<RedisNode>;
  stop(): Promise<void>;
}

interface AddOptions {
  isSentinel?: boolean;
  /** Has a bus of Redis Cluster. */
  clustered?: boolean;
}

/** Source addresses are of one rig alone: a relay sees connections to its own rig only. */
const FIRST_SOURCE = 21;

/**
 * Nodes behind relays, under a folder of their own, with ports that nobody else gets until the rig stops.
 * @param options.folder kept afterwards; a temporary one when left out
 */
export async function createNodeSet(
  options: { folder?: string; binary?: RedisBinary } = {},
): Promise<NodeSet> {
  await requireSources();
  const folder = options.folder ?? (await mkdtemp(join(tmpdir(), "tollgate-failover-")));
  const binary = options.binary ?? (await redisBinary());
  const links = createLinks();
  const nodes: RedisNode[] = [];
  const held: HeldPort[] = [];
  const hold = async (): Promise<number> => {
    const port = await holdPort();
    held.push(port);
    return port.port;
  };
  return {
    links,
    async add(name, config, { isSentinel = false, clustered = false } = {}) {
      const port = await hold();
      const source = `127.0.0.${FIRST_SOURCE + nodes.length}`;
      links.know(source, name);
      const announced = await links.open(name, port);
      const bus = clustered ? await hold() : 0;
      const announcedBus = clustered ? await links.open(name, bus) : 0;
      const lines = [`bind-source-addr ${source}`, ...config({ name, source, announced, bus, announcedBus })];
      const dir = join(folder, name);
      const node = createNode({ name, binary, dir, port, announced, config: lines, isSentinel });
      nodes.push(node);
      return node;
    },
    async stop() {
      links.stop();
      await Promise.all(nodes.map((node) => node.stop()));
      for (const port of held) port.release();
      if (options.folder === undefined) await rm(folder, { recursive: true, force: true });
    },
  };
}

/** @throws where the loopback has one address only */
async function requireSources(): Promise<void> {
  if ((await portIfFree(0, `127.0.0.${FIRST_SOURCE}`)) !== undefined) return;
  throw new Error(
    `nodes are told apart by source addresses from 127.0.0.${FIRST_SOURCE} on, as Linux has them; ` +
      `elsewhere add them to the loopback, such as with \`ifconfig lo0 alias 127.0.0.${FIRST_SOURCE}\``,
  );
}

/** Settings of every data node, as the operations guide wants them; timeouts of a second. */
export const dataConfig = ({ announced }: Ports): string[] => [
  "appendonly yes",
  "appendfsync everysec",
  'save ""',
  "maxmemory-policy noeviction",
  "replica-announce-ip 127.0.0.1",
  `replica-announce-port ${announced}`,
  "repl-diskless-sync-delay 0",
  "repl-ping-replica-period 1",
  // Counted in whole seconds: with 1 a busy machine cuts healthy links.
  "repl-timeout 2",
];
