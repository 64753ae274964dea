import type { Connection } from "./connection.ts";
import { partitionNames } from "./names.ts";
import type { RedisNodes } from "./nodes.ts";
import { type PartitionReads, readsOfMost } from "./partition-reads.ts";
import { many } from "./pipelines.ts";
import { tally } from "./scripts/tally.ts";
import { storedFacts } from "./store-facts.ts";
import { takeTurn } from "./take-turn.ts";
import { keyIdsIn } from "./walk-keys.ts";
import { createWriteWatch } from "./write-watch.ts";

/** Exists until the next sum over all partitions is due. */
const TURN = "tg:tiers-turn";
/** Exists while one gateway counts keys. */
const TALLY_TURN = "tg:tally-turn";
/** The latest sum (JSON). */
const SUM = "tg:tiers";
/** A sum expires if no gateway makes a new one. */
const SUM_LIFETIME_MS = 60_000;
/** When all keys of the partition were last gone through; the name of no tier. */
const COUNTED_AT = "#counted_at";
/** A key that an earlier release has made or changed is counted this long after it at the latest. */
const COUNTED_AGAIN_MS = 24 * 3_600_000;
/** Keys counted in one call: a fraction of a millisecond of Redis. */
const KEYS_AT_A_TIME = 100;
/** After it another gateway goes on with counting. */
const TALLY_TURN_MS = 60_000;

/** How many keys use each tier, over all partitions. A revoked key uses none, an expired one does: its end can be moved. */
export interface TierCounts {
  keys: Readonly<Record<string, number>>;
  /** Partitions whose keys are not counted, or not all of them yet. */
  uncounted: number;
  /** Partitions whose primary is away, and of which no earlier figures are known. */
  unread: number;
}

/** One partition: how many keys use each tier, and when all of them were last gone through, Unix ms. */
interface PartitionCounts {
  keys: Record<string, number>;
  countedAtMs: number | undefined;
}

export type TierCounter = ReturnType<typeof createTierCounter>;

/**
 * Keys by tier. ISSUE and CHANGE keep the counts of each partition; one gateway at a time sums them for all gateways, and
 * counts the keys of partitions that were not counted yet.
 * @throws GatewayError `store_unavailable` from each
 */
export function createTierCounter(connection: Connection) {
  /** The latest figures of each partition, which count on while its primary is away. */
  const known = new Map<number, PartitionCounts>();
  const watch = createWriteWatch();

  async function readPartitions(): Promise<void> {
    const { partitions = 0 } = connection.facts() ?? {};
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

  /** Goes through the keys of a partition. */
  async function tallyPartition(partition: number): Promise<void> {
    const { run, within, redis } = connection.of(partition);
    const pages = keyIdsIn(redis, partition);
    for (let page = await within(pages.next()); !page.done; page = await within(pages.next())) {
      for (let at = 0; at < page.value.length; at += KEYS_AT_A_TIME) {
        const keyIds = page.value.slice(at, at + KEYS_AT_A_TIME);
        await run(tally, { partition, keyIds, isLast: false });
      }
    }
    await run(tally, { partition, keyIds: [], isLast: true });
  }

  return {
    /** True for one gateway per interval, which then sums. */
    turn: (intervalMs: number) => takeTurn(connection, TURN, intervalMs),
    /** Sums over all partitions; those that cannot be read count with what was read of them last. */
    async sum(): Promise<TierCounts> {
      const { partitions = 0 } = connection.facts() ?? {};
      await readPartitions();
      return summed(known, partitions);
    },
    async publish(counts: TierCounts): Promise<void> {
      await connection
        .ofName(SUM)
        .command((redis) => redis.set(SUM, JSON.stringify(counts), "PX", SUM_LIFETIME_MS));
    },
    /** The latest sum of any gateway; undefined when none has summed for a minute. */
    async latest(): Promise<TierCounts | undefined> {
      const text = await connection.ofName(SUM).command((redis) => redis.get(SUM));
      return text === null ? undefined : (JSON.parse(text) as TierCounts);
    },
    /**
     * Counts the keys of partitions that were not gone through for a day, one partition after the other, unless another gateway
     * does. Partitions that are frozen, or whose primary is away, are left for later.
     * @param isStopped asked before each partition
     */
    async countKeys(isStopped: () => boolean): Promise<void> {
      const dueMs = connection.nowMs() - COUNTED_AGAIN_MS;
      const due = [...known].filter(([, { countedAtMs = 0 }]) => countedAtMs < dueMs);
      for (const [partition] of due) {
        if (isStopped() || !(await takeTurn(connection, TALLY_TURN, TALLY_TURN_MS))) return;
        await tallyPartition(partition).catch(() => undefined);
        await connection.ofName(TALLY_TURN).command((redis) => redis.del(TALLY_TURN));
      }
    },
  };
}

/** The same counts as an operator's command reads them. Writes nothing, also to a store that was never used. */
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

function countsOf(fields: Readonly<Record<string, string>>): PartitionCounts {
  const { [COUNTED_AT]: countedAt, ...keys } = fields;
  return {
    keys: Object.fromEntries(Object.entries(keys).map(([tier, count]) => [tier, Number(count)])),
    countedAtMs: countedAt === undefined ? undefined : Number(countedAt),
  };
}

function summed(read: ReadonlyMap<number, PartitionCounts>, partitions: number): TierCounts {
  const sum = new Map<string, number>();
  let uncounted = 0;
  for (const { keys, countedAtMs } of read.values()) {
    if (countedAtMs === undefined) uncounted++;
    for (const [tier, count] of Object.entries(keys)) sum.set(tier, (sum.get(tier) ?? 0) + count);
  }
  return { keys: Object.fromEntries(sum), uncounted, unread: partitions - read.size };
}
