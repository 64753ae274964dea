import { expect } from "vitest";
import type { RunningRedis } from "../../src/sandbox/redis.ts";
import { createClient } from "./client.ts";
import { startClusterNode } from "./cluster-node.ts";
import { soon } from "./soon.ts";

/** A Redis Cluster of one node with all slots: like any cluster, it refuses a script whose names lie in two slots. */
export async function startWholeCluster(dir: string): Promise<RunningRedis> {
  const server = await startClusterNode(dir);
  const redis = createClient(server.url, 10_000);
  await redis.connect();
  await redis.cluster("ADDSLOTSRANGE", 0, 16_383);
  await soon(async () => expect(await redis.cluster("INFO")).toContain("cluster_state:ok"));
  redis.disconnect();
  return server;
}
