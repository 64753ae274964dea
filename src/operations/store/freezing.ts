import type { Redis } from "ioredis";
import { frozenName, META, partitionNames } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import { placeOf } from "../../redis/open-nodes.ts";
import { type PartitionReads, readsOfAll } from "../../redis/partition-reads.ts";
import { isMoving } from "../../redis/script-errors.ts";
import { readInfo, storeNowMs } from "../../redis/server-info.ts";
import { isCluster, partitionsOf, type RedisNodes } from "../../redis/store-facts.ts";
import { slotOf } from "../../redis/topology/cluster-slots.ts";
import { frozenField, listFrozen } from "../../redis/topology/frozen-partitions.ts";

const REPLICA_MS = 1000;

export interface PartitionView {
  partition: number;
  slot: number | undefined;
  server: string;
  frozenSinceMs: number | undefined;
  /** The flag that stops all scripts; undefined if it could not be read. */
  hasFreezeFlag: boolean | undefined;
  isMoving: boolean;
}

export async function listPartitions(
  nodes: RedisNodes,
  reads = readsOfAll(nodes),
  count?: number,
): Promise<PartitionView[]> {
  const length = count ?? (await partitionsOf(nodes));
  const partitions = Array.from({ length }, (_, partition) => ({ partition }));
  const meta = nodes.ofName(META);
  const isClustered = await isCluster(meta);
  const [listed, moving] = await Promise.all([listFrozen(meta), movingSlots(nodes, reads)]);
  return Promise.all(
    partitions.map(async ({ partition }) => {
      const slot = isClustered ? slotOfPartition(partition) : undefined;
      const isMoving = slot !== undefined && moving.has(slot);
      return {
        partition,
        slot,
        server: placeOf(nodes.of(partition)),
        frozenSinceMs: listed.get(partition),
        hasFreezeFlag: isMoving ? undefined : await hasFreezeFlag(reads, partition),
        isMoving,
      };
    }),
  );
}

const hasFreezeFlag = (reads: PartitionReads, partition: number): Promise<boolean | undefined> =>
  reads.at(partition, async (redis) => (await redis.exists(frozenName(partition))) === 1);

/**
 * The list in `tg:meta` comes first, so that a frozen partition is always listed; its own flag stops scripts. Repeatable.
 * @throws OperatorError on one server, for an unknown partition, and if no replica has it
 */
export async function freezePartitions(nodes: RedisNodes, partitions: readonly number[]): Promise<void> {
  await requirePartitions(nodes, partitions);
  const meta = nodes.ofName(META);
  nodes.requireWritable?.([meta, ...partitions.map(nodes.of)]);
  for (const partition of partitions) {
    const nowMs = await storeNowMs(meta);
    await meta.hsetnx(META, frozenField(partition), nowMs);
    await unlessMoving(partition, nodes.of(partition).set(frozenName(partition), nowMs));
    // A thaw at the same moment may have taken it off the list.
    await meta.hsetnx(META, frozenField(partition), nowMs);
  }
  const unknown = await unknownToReplicas(partitions.map(nodes.of));
  if (unknown)
    throw new OperatorError(
      `the partitions are frozen, but ${unknown}, and a failover would lose it; repeat this before you move anything`,
    );
}

/** Removes the flags first: gateways use no half-thawed partition. @throws OperatorError while a slot moves, and if no replica has it */
export async function thawPartitions(nodes: RedisNodes, partitions: readonly number[]): Promise<void> {
  await requirePartitions(nodes, partitions);
  const meta = nodes.ofName(META);
  nodes.requireWritable?.([meta, ...partitions.map(nodes.of)]);
  const moving = await movingSlots(nodes, readsOfAll(nodes));
  for (const partition of partitions) if (moving.has(slotOfPartition(partition))) throw onItsWay(partition);
  for (const partition of partitions) {
    const redis = nodes.of(partition);
    // A repeat must write, too: WAIT counts the writes of this connection.
    await unlessMoving(partition, redis.set(frozenName(partition), "thawed"));
    await unlessMoving(partition, redis.del(frozenName(partition)));
  }
  const unknown = await unknownToReplicas(partitions.map(nodes.of));
  if (unknown)
    throw new OperatorError(
      `the partitions stay listed as frozen, since ${unknown}; repeat this when the replicas are back`,
    );
  await meta.hdel(META, ...partitions.map(frozenField));
  // A partition that another operator has frozen meanwhile stays listed.
  for (const partition of partitions)
    if (await nodes.of(partition).exists(frozenName(partition)))
      await meta.hsetnx(META, frozenField(partition), await storeNowMs(meta));
}

async function requirePartitions(nodes: RedisNodes, partitions: readonly number[]): Promise<void> {
  if (!(await isCluster(nodes.ofName(META))))
    throw new OperatorError(
      "only partitions of a Redis Cluster are frozen: on one server, and behind Sentinels, there is no slot to move",
    );
  const count = await partitionsOf(nodes);
  const unknown = partitions.find((partition) => partition >= count);
  if (unknown !== undefined)
    throw new OperatorError(`there is no partition ${unknown}; this store has 0 to ${count - 1}`);
}

async function unknownToReplicas(servers: readonly Redis[]): Promise<string | undefined> {
  const places: string[] = [];
  for (const redis of new Set(servers)) {
    const replicas = Number(readInfo(await redis.info("replication")).get("connected_slaves") ?? 0);
    if (replicas > 0 && (await redis.wait(1, REPLICA_MS)) < 1) places.push(placeOf(redis));
  }
  return places.length === 0 ? undefined : `no replica of ${places.join(", ")} has it`;
}

/** A node that gives a slot away accepts no new names in it. */
async function unlessMoving<T>(partition: number, write: Promise<T>): Promise<T> {
  try {
    return await write;
  } catch (error) {
    if (isMoving(error)) throw onItsWay(partition);
    throw error;
  }
}

const onItsWay = (partition: number): OperatorError =>
  new OperatorError(
    `the slot of partition ${partition} is between two nodes; see \`redis-cli --cluster check\`, end its move with ` +
      "`redis-cli --cluster fix`, then run this again",
  );

async function movingSlots(nodes: RedisNodes, reads: PartitionReads): Promise<Set<number>> {
  const moving = new Set<number>();
  if (!(await isCluster(nodes.ofName(META)))) return moving;
  for (const redis of nodes.all()) {
    const text = await redis.cluster("NODES").catch((error: unknown) => reads.skip(error));
    for (const [, slot] of String(text ?? "").matchAll(/\[(\d+)-[<>]-/g)) moving.add(Number(slot));
  }
  return moving;
}

export const slotOfPartition = (partition: number): number => slotOf(partitionNames(partition).ledger);
