import type { Redis } from "ioredis";
import type { Connection } from "./connection.ts";
import { many } from "./pipelines.ts";
import type { Primary } from "./primary.ts";
import { storeNowMs } from "./server-info.ts";
import { thawedPartitions } from "./topology/frozen-partitions.ts";
import { createWriteWatch } from "./write-watch.ts";

/** A sorted set of a partition, whose scores say when something is due (Unix ms). */
interface PartitionList<List extends string> {
  list: List;
  name: string;
  /** The score that stands for the time 0; 0 by default. */
  from?: number;
  partition: number;
}

/** Requests of a busy gateway wait while it writes the commands of a round trip: for all 128 lists of a store, some milliseconds each second. */
const AT_ONCE = 32;

type Due<List extends string, Partitions> = Record<List, Partitions>;

/**
 * Partitions with something due, of all primaries that answer. @param kinds the lists that a partition has
 * @param options.nowMs the store's clock, which is asked when left out @param options.late what is new may be seen a second late
 * @throws GatewayError `store_unavailable` if no primary answers
 */
export function createDueLists<List extends string>(
  connection: Connection,
  listsOf: (partition: number) => readonly PartitionList<List>[],
  kinds: readonly List[],
  { nowMs, late = true }: { nowMs?: (() => number) | undefined; late?: boolean } = {},
): () => Promise<Due<List, ReadonlySet<number>>> {
  const watch = createWriteWatch({ late });
  /** When the first request of each list is due, Unix ms, as of the last look at the lists of a primary. */
  const firstDue = new WeakMap<Redis, number[]>();

  /** One pipeline reads all lists, and only if one may have changed since the last time. */
  const addDue = (primary: Primary, due: Due<List, Set<number>>): Promise<void> =>
    primary.command(async (redis) => {
      const lists = thawedPartitions(connection, primary).flatMap((partition) => listsOf(partition));
      const atMs = nowMs?.() ?? (await storeNowMs(redis));
      const looked = await watch.news(redis, lists.map(({ partition }) => partition).join());
      if (looked) {
        const firsts = await many<string[], (typeof lists)[number]>(
          redis,
          lists,
          (pipe, { name, from = 0 }) => pipe.zrangebyscore(name, from, "+inf", "WITHSCORES", "LIMIT", 0, 1),
          AT_ONCE,
        );
        firstDue.set(
          redis,
          firsts.map((first, at) => Number(first[1] ?? Number.POSITIVE_INFINITY) - (lists[at]!.from ?? 0)),
        );
        looked();
      }
      const dueAt = firstDue.get(redis) ?? [];
      for (const [at, { list, partition }] of lists.entries()) {
        if (dueAt[at]! <= atMs) due[list].add(partition);
      }
    });

  return async () => {
    const due = Object.fromEntries(kinds.map((list) => [list, new Set()])) as Due<List, Set<number>>;
    const primaries = connection.primaries();
    const results = await Promise.allSettled(primaries.map((primary) => addDue(primary, due)));
    const failed = results.filter((result) => result.status === "rejected");
    if (failed.length === primaries.length) throw failed[0]!.reason;
    return due;
  };
}
