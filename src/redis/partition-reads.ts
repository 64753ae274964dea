import type { ChainableCommander, Redis } from "ioredis";
import { OperatorError } from "../records/operator-error.ts";
import { many } from "./pipelines.ts";
import { isStoreError, storeReason } from "./reasons.ts";
import { storeFault } from "./script-errors.ts";
import type { RedisNodes } from "./store-facts.ts";

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

/** Goes on without servers that are away; one that failed is not asked again. If a store has one server, its error is thrown. */
export const readsOfMost = (nodes: RedisNodes): PartitionReads =>
  new PartitionReads(nodes, nodes.all().length > 1);

export const readsOfAll = (nodes: RedisNodes): PartitionReads => new PartitionReads(nodes, false);

export class PartitionReads {
  readonly #nodes: RedisNodes;
  readonly #goesOn: boolean;
  readonly #away = new Map<Redis, string>();
  readonly #unread = new Set<number>();

  constructor(nodes: RedisNodes, goesOn: boolean) {
    this.#nodes = nodes;
    this.#goesOn = goesOn;
  }

  /** @returns undefined if the partition's server is away; it is among the unread ones then */
  async at<T>(partition: number, read: (redis: Redis) => Promise<T>): Promise<T | undefined> {
    const redis = this.#nodes.of(partition);
    try {
      if (!this.#away.has(redis)) return await read(redis);
    } catch (error) {
      this.#leave(redis, error);
    }
    this.#unread.add(partition);
    return undefined;
  }

  /** Pages of a partition; they end early if its server is away. */
  async *pages<Page>(partition: number, walk: (redis: Redis) => AsyncIterable<Page>): AsyncGenerator<Page> {
    const redis = this.#nodes.of(partition);
    try {
      if (!this.#away.has(redis)) return yield* walk(redis);
    } catch (error) {
      this.#leave(redis, error);
    }
    this.#unread.add(partition);
  }

  /**
   * One command per item, all servers at the same time; answers are in the order of the items, undefined if unread.
   * @param atOnce items of a round trip, for commands that are not cheap
   */
  async many<Answer, Item extends { partition: number }>(
    items: readonly Item[],
    command: (pipe: ChainableCommander, item: Item) => ChainableCommander,
    atOnce?: number,
  ): Promise<(Answer | undefined)[]> {
    const answers = new Array<Answer | undefined>(items.length);
    const byNode = Map.groupBy(items.keys(), (index) => this.#nodes.of(items[index]!.partition));
    const readAll = async (indexes: readonly number[]): Promise<void> => {
      const found = await this.at(items[indexes[0]!]!.partition, (redis) =>
        many<Answer, number>(redis, indexes, (pipe, index) => command(pipe, items[index]!), atOnce),
      );
      for (const [place, index] of indexes.entries()) {
        if (found) answers[index] = found[place]!;
        else this.#unread.add(items[index]!.partition);
      }
    };
    await Promise.all([...byNode.values()].map(readAll));
    return answers;
  }

  /** As `at`, for work on a whole server, of which these are all partitions; without any it is not done. */
  async onServer(partitions: readonly number[], read: (redis: Redis) => Promise<void>): Promise<void> {
    const [first] = partitions;
    if (first === undefined) return;
    const isRead = await this.at(first, async (redis) => {
      await read(redis);
      return true;
    });
    if (!isRead) for (const partition of partitions) this.#unread.add(partition);
  }

  /** For a read of a global name that failed. @returns undefined if its server is away @throws the error otherwise */
  readonly skip = (error: unknown): undefined => {
    if (!this.#goesOn || !isAway(error)) throw error;
  };

  /** Undefined if all could be read so far. */
  readonly unread = (): Unread | undefined => {
    if (this.#unread.size === 0) return undefined;
    const partitions = [...this.#unread].sort((a, b) => a - b);
    return { partitions, why: [...this.#away.values()].join("; ") };
  };

  #leave(redis: Redis, error: unknown): void {
    this.skip(error);
    const { host, port } = redis.options;
    this.#away.set(redis, `${host}:${port}: ${storeReason(error).why}`);
  }
}

/** True if an error says that a server is away, and not that Redis refuses or that this program is wrong. */
const isAway = (error: unknown): boolean => isStoreError(error) && storeFault(error) === "transient";

export function unreadInWords({ partitions, why }: Unread): string {
  const which = `${partitions.length} ${partitions.length === 1 ? "partition" : "partitions"}`;
  return `${which} could not be read (${why})`;
}
