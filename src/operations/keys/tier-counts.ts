import { partitionNames } from "../../records/names.ts";
import type { Connection } from "../../redis/connection.ts";
import { type PartitionReads, readsOfMost } from "../../redis/partition-reads.ts";
import { many } from "../../redis/pipelines.ts";
import { takeLease } from "../../redis/repeated-work.ts";
import { type RedisNodes, storedFacts } from "../../redis/store-facts.ts";
import { createWriteWatch } from "../../redis/write-watch.ts";

const LEASE = "tg:tiers-lease";
const SUM = "tg:tiers";
const SUM_LIFETIME_MS = 60_000;
/** Expired keys count: their expiry can be moved. Revoked ones do not. */
export interface TierCounts {
  keys: Readonly<Record<string, number>>;
  unread: number;
}

type PartitionCounts = Readonly<Record<string, number>>;

export type TierCounter = ReturnType<typeof createTierCounter>;

/** ISSUE, CHANGE and REVOKE count per partition; one gateway sums for all. @throws GatewayError `store_unavailable` from each */
export function createTierCounter(connection: Connection) {
  /** Also counted while the primary is unavailable. */
  const known = new Map<number, PartitionCounts>();
  const watch = createWriteWatch();

  async function readPartitions(): Promise<void> {
    const { partitions = 0 } = connection.known.facts ?? {};
    const all = Array.from({ length: partitions }, (_, partition) => partition);
    for (const primary of connection.primaries()) {
      const own = all.filter((partition) => connection.of(partition) === primary);
      const read = primary.command(async (redis) => {
        const looked = await watch.news(redis, own.join());
        if (!looked) return [];
        const fields = await many<Record<string, string>, number>(redis, own, (pipe, partition) =>
          pipe.hgetall(partitionNames(partition).tiers),
        );
        looked();
        return fields;
      });
      const found = await read.catch(() => []);
      for (const [at, fields] of found.entries()) known.set(own[at]!, countsOf(fields));
    }
  }

  return {
    lease: (intervalMs: number) => takeLease(connection, LEASE, intervalMs),
    /** Unread partitions count with their latest figures. */
    async sum(): Promise<TierCounts> {
      const { partitions = 0 } = connection.known.facts ?? {};
      await readPartitions();
      return summed(known, partitions);
    },
    async publish(counts: TierCounts): Promise<void> {
      await connection
        .ofName(SUM)
        .command((redis) => redis.set(SUM, JSON.stringify(counts), "PX", SUM_LIFETIME_MS));
    },
    /** Undefined without a sum in the last minute. */
    async latest(): Promise<TierCounts | undefined> {
      const text = await connection.ofName(SUM).command((redis) => redis.get(SUM));
      return text === null ? undefined : (JSON.parse(text) as TierCounts);
    },
  };
}

export async function readTierCounts(
  nodes: RedisNodes,
  reads: PartitionReads = readsOfMost(nodes),
): Promise<TierCounts> {
  const partitions = Number((await storedFacts(nodes)).partitions ?? 0);
  const places = Array.from({ length: partitions }, (_, partition) => ({ partition }));
  const found = await reads.many<Record<string, string>, { partition: number }>(
    places,
    (pipe, { partition }) => pipe.hgetall(partitionNames(partition).tiers),
  );
  const read = [...found.entries()].flatMap(([partition, fields]) =>
    fields === undefined ? [] : [[partition, countsOf(fields)] as const],
  );
  return summed(new Map(read), partitions);
}

const countsOf = (fields: Readonly<Record<string, string>>): PartitionCounts =>
  Object.fromEntries(Object.entries(fields).map(([tier, count]) => [tier, Number(count)]));

function summed(read: ReadonlyMap<number, PartitionCounts>, partitions: number): TierCounts {
  const sum = new Map<string, number>();
  for (const keys of read.values())
    for (const [tier, count] of Object.entries(keys)) sum.set(tier, (sum.get(tier) ?? 0) + count);
  return { keys: Object.fromEntries(sum), unread: partitions - read.size };
}

/** Undefined when all partitions could be read. */
export const gapsInWords = ({ unread }: TierCounts): string | undefined =>
  unread > 0
    ? `whether keys use other tiers is not fully known: ${unread} partitions cannot be read`
    : undefined;
