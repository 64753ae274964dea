import { randomUUID } from "node:crypto";
import type { Redis } from "ioredis";
import { markName } from "../../records/names.ts";
import { createRounds, markAndWait } from "../../redis/confirmation.ts";
import type { RedisNodes } from "../../redis/nodes.ts";

/** Longer than for a customer's request. */
const WAIT_MS = 1000;
const PARTITIONS_MAX = 1024;

/**
 * Adds `confirmed`: whether replicas have all writes so far, including those of earlier commands. Nobody sends an
 * operator's write again, and Sentinels choose a replica by information that is seconds old, so every replica that
 * may be promoted must have it. @param replicas 0: none are asked
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
  const used = new Set<Redis>();
  const recordUse = (redis: Redis): Redis => {
    used.add(redis);
    return redis;
  };
  const rounds = createRounds(async () => {
    const answers = await Promise.all([...used].map(isOnReplicas));
    return answers.every((isThere) => isThere) ? "replicas" : "none";
  });
  return {
    all: nodes.all,
    of: (partition) => recordUse(nodes.of(partition)),
    ofName: (name) => recordUse(nodes.ofName(name)),
    confirmed: async () => (await rounds.join()) === "replicas",
  };
}

/** `confirmed` is undefined where replicas are not asked. */
export interface Written<T> {
  result: T;
  confirmed: boolean | undefined;
}

/** A failure to confirm does not undo the work. */
export async function writtenBy<T>(
  work: (nodes: RedisNodes) => Promise<T>,
  nodes: RedisNodes,
): Promise<Written<T>> {
  const result = await work(nodes);
  return { result, confirmed: await nodes.confirmed?.() };
}

function partitionOn(nodes: RedisNodes, redis: Redis): number {
  let partition = 0;
  while (partition < PARTITIONS_MAX && nodes.of(partition) !== redis) partition++;
  return partition;
}
