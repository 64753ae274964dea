import type { RedisBinary } from "../../src/sandbox/redis-server.ts";
import type { Links } from "./links.ts";
import { type RedisNode, waitFor } from "./node.ts";
import { createNodeSet, dataConfig } from "./nodes.ts";

const HEALTHY_TIMEOUT_MS = 60_000;

/** A primary with one replica, and nobody who would fail over: the primary comes back or is away. */
export interface Pair {
  redisUrl: string;
  primary: RedisNode;
  replica: RedisNode;
  links: Links;
  /** Both run and replicate. */
  healthy(): Promise<void>;
  stop(): Promise<void>;
}

export async function startPair(options: { folder?: string; binary?: RedisBinary } = {}): Promise<Pair> {
  const set = await createNodeSet(options);
  try {
    const primary = await set.add("primary", dataConfig);
    const replica = await set.add("replica", (ports) => [
      ...dataConfig(ports),
      `replicaof 127.0.0.1 ${primary.announced}`,
    ]);
    const healthy = (): Promise<void> =>
      waitFor("the replica to be in step", HEALTHY_TIMEOUT_MS, async () => {
        const info = await replica.info("replication");
        return info?.master_link_status === "up" && (await isAcknowledged(primary));
      });
    await Promise.all([primary.start(), replica.start()]);
    await healthy();
    return {
      redisUrl: `redis://127.0.0.1:${primary.announced}`,
      primary,
      replica,
      links: set.links,
      healthy,
      stop: () => set.stop(),
    };
  } catch (error) {
    await set.stop();
    throw error;
  }
}

/** A replica has acknowledged all that the primary has written. */
async function isAcknowledged(primary: RedisNode): Promise<boolean> {
  const { master_repl_offset: written, slave0: replica } = (await primary.info("replication")) ?? {};
  return written !== undefined && replica?.includes(`offset=${written},`) === true;
}
