import { randomUUID } from "node:crypto";
import type { Redis } from "ioredis";
import { markName } from "../../records/names.ts";
import { createRounds, markAndWait } from "../../redis/confirmation.ts";
import type { RedisNodes } from "../../redis/nodes.ts";

/** How long an operator's command waits for replicas: longer than a customer's request. */
const WAIT_MS = 1000;
/** As many as a store may have. */
const PARTITIONS_MAX = 1024;

/**
 * The servers of a store with `confirmed`: whether replicas of each have all that was written to it. Its mark makes that
 * true of earlier commands' writes, too, so a command that is repeated confirms what the first one wrote.
 * Nobody sends an operator's write again, and Sentinels choose whom to promote by what they read seconds before. So each
 * replica that may be promoted must have it.
 * @param replicas how many must have it at least; 0: nothing is asked of them
 */
export function confirmedByReplicas(nodes: RedisNodes, replicas: number): RedisNodes {
  if (replicas === 0) return nodes;
  const writer = randomUUID();
  const isOnReplicas = (redis: Redis): Promise<boolean> =>
    markAndWait(redis, {
      mark: markName(partitionOn(nodes, redis), writer),
      replicas: Math.max(replicas, nodes.replicasOf?.(redis) ?? 0),
      timeoutMs: WAIT_MS,
    });
  /** Servers that may have been written to; what others miss does not matter. */
  const used = new Set<Redis>();
  const noted = (redis: Redis): Redis => {
    used.add(redis);
    return redis;
  };
  // Many keys that are imported at a time share a round.
  const rounds = createRounds(async () => {
    const answers = await Promise.all([...used].map(isOnReplicas));
    return answers.every((isThere) => isThere) ? "replicas" : "none";
  });
  return {
    all: nodes.all,
    of: (partition) => noted(nodes.of(partition)),
    ofName: (name) => noted(nodes.ofName(name)),
    confirmed: async () => (await rounds.join()) === "replicas",
  };
}

/** What was done, and whether replicas have it; undefined where that is not asked of them. */
export interface Written<T> {
  result: T;
  confirmed: boolean | undefined;
}

/** Does work that writes, and then asks the replicas. A failure to ask does not undo the work. */
export async function writtenBy<T>(
  work: (nodes: RedisNodes) => Promise<T>,
  nodes: RedisNodes,
): Promise<Written<T>> {
  const result = await work(nodes);
  return { result, confirmed: await nodes.confirmed?.() };
}

/** A partition of a server, for the name of its mark. */
function partitionOn(nodes: RedisNodes, redis: Redis): number {
  let partition = 0;
  while (partition < PARTITIONS_MAX && nodes.of(partition) !== redis) partition++;
  return partition;
}
