import type { ChainableCommander, Redis } from "ioredis";
import { OperatorError } from "../records/operator-error.ts";
import type { RedisNodes } from "./nodes.ts";
import { many } from "./pipelines.ts";
import { isStoreError, storeReason } from "./reasons.ts";
import { storeFault } from "./script-errors.ts";

/** Partitions that could not be read because their servers are away. What they hold is not known, neither right nor wrong. */
export interface Unread {
  partitions: number[];
  /** Each of these servers with the reason, in words. */
  why: string;
}

export class UnreadError extends OperatorError {
  constructor(message: string) {
    super(message, "unavailable");
  }
}

export interface PartitionReads {
  /** @returns undefined if the partition's server is away; it is among the unread ones then */
  at<T>(partition: number, read: (redis: Redis) => Promise<T>): Promise<T | undefined>;
  /** Pages of a partition; they end early if its server is away. */
  pages<Page>(partition: number, walk: (redis: Redis) => AsyncIterable<Page>): AsyncGenerator<Page>;
  /**
   * One command per item, all servers at the same time; answers are in the order of the items, undefined if unread.
   * @param atOnce items of a round trip, for commands that are not cheap
   */
  many<Answer, Item extends { partition: number }>(
    items: readonly Item[],
    command: (pipe: ChainableCommander, item: Item) => ChainableCommander,
    atOnce?: number,
  ): Promise<(Answer | undefined)[]>;
  /** As `at`, for work on a whole server, of which these are all partitions; without any it is not done. */
  onServer(partitions: readonly number[], read: (redis: Redis) => Promise<void>): Promise<void>;
  /** For a read of a global name that failed. @returns undefined if its server is away @throws the error otherwise */
  skip(error: unknown): undefined;
  /** Undefined if all could be read so far. */
  unread(): Unread | undefined;
}

/** Goes on without servers that are away; one that failed is not asked again. If a store has one server, its error is thrown. */
export const readsOfMost = (nodes: RedisNodes): PartitionReads => createReads(nodes, nodes.all().length > 1);

export const readsOfAll = (nodes: RedisNodes): PartitionReads => createReads(nodes, false);

function createReads(nodes: RedisNodes, goesOn: boolean): PartitionReads {
  const away = new Map<Redis, string>();
  const unread = new Set<number>();

  function leave(redis: Redis, error: unknown): void {
    if (!goesOn || !isAway(error)) throw error;
    const { host, port } = redis.options;
    away.set(redis, `${host}:${port}: ${storeReason(error).why}`);
  }

  async function at<T>(partition: number, read: (redis: Redis) => Promise<T>): Promise<T | undefined> {
    const redis = nodes.of(partition);
    try {
      if (!away.has(redis)) return await read(redis);
    } catch (error) {
      leave(redis, error);
    }
    unread.add(partition);
    return undefined;
  }

  async function* pages<Page>(
    partition: number,
    walk: (redis: Redis) => AsyncIterable<Page>,
  ): AsyncGenerator<Page> {
    const redis = nodes.of(partition);
    try {
      if (!away.has(redis)) return yield* walk(redis);
    } catch (error) {
      leave(redis, error);
    }
    unread.add(partition);
  }

  return {
    at,
    pages,
    async many<Answer, Item extends { partition: number }>(
      items: readonly Item[],
      command: (pipe: ChainableCommander, item: Item) => ChainableCommander,
      atOnce?: number,
    ) {
      const answers = new Array<Answer | undefined>(items.length);
      const byNode = Map.groupBy(items.keys(), (index) => nodes.of(items[index]!.partition));
      const readAll = async (indexes: readonly number[]): Promise<void> => {
        const found = await at(items[indexes[0]!]!.partition, (redis) =>
          many<Answer, number>(redis, indexes, (pipe, index) => command(pipe, items[index]!), atOnce),
        );
        for (const [place, index] of indexes.entries()) {
          if (found) answers[index] = found[place]!;
          else unread.add(items[index]!.partition);
        }
      };
      await Promise.all([...byNode.values()].map(readAll));
      return answers;
    },
    async onServer(partitions, read) {
      const [first] = partitions;
      if (first === undefined) return;
      const isRead = await at(first, async (redis) => {
        await read(redis);
        return true;
      });
      if (!isRead) for (const partition of partitions) unread.add(partition);
    },
    skip(error) {
      if (!goesOn || !isAway(error)) throw error;
      return undefined;
    },
    unread() {
      if (unread.size === 0) return undefined;
      const partitions = [...unread].sort((a, b) => a - b);
      return { partitions, why: [...away.values()].join("; ") };
    },
  };
}

/** True if an error says that a server is away, and not that Redis refuses or that this program is wrong. */
const isAway = (error: unknown): boolean => isStoreError(error) && storeFault(error) === "transient";

export function unreadInWords({ partitions, why }: Unread): string {
  const which = `${partitions.length} ${partitions.length === 1 ? "partition" : "partitions"}`;
  return `${which} could not be read (${why})`;
}
