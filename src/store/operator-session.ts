import type { Redis } from "ioredis";
import { GatewayError } from "../domain/errors.ts";
import { OperatorError } from "./accounts.ts";
import { createClient } from "./client.ts";
import { oneNode, type RedisNodes } from "./nodes.ts";
import { requireWritable } from "./operator-loss.ts";
import { inStoreWords } from "./reasons.ts";
import { readFacts } from "./store-facts.ts";

export type { RedisNodes };

/** Longer than that of requests: pages of records take more time. */
const COMMAND_TIMEOUT_MS = 5000;

export type OperatorSession = ReturnType<typeof createOperatorSession>;

/**
 * The console's own connection, made when it is first used: bulk reads of operators never delay a customer's request.
 * @param options.partitions used at the very first start of a store only
 */
export function createOperatorSession(options: {
  redisUrl: string;
  tlsCa?: string | undefined;
  partitions: number;
}) {
  let opened: { redis: Redis; ready: Promise<void> } | undefined;

  async function connect(redis: Redis): Promise<void> {
    let last: Error | undefined;
    redis.on("error", (error) => {
      last = error;
    });
    try {
      await redis.connect();
      // Refuses a store that may evict money.
      await readFacts(oneNode(redis), options.partitions);
    } catch (error) {
      redis.disconnect();
      opened = undefined;
      throw last ?? error;
    }
  }

  /**
   * Runs an operator's work against Redis.
   * @throws OperatorError as it is; GatewayError `store_unavailable` for everything else
   */
  async function run<T>(work: (nodes: RedisNodes) => Promise<T>): Promise<T> {
    try {
      if (!opened) {
        const redis = createClient(options.redisUrl, COMMAND_TIMEOUT_MS, options.tlsCa);
        opened = { redis, ready: connect(redis) };
      }
      const { redis, ready } = opened;
      await ready;
      return await work(oneNode(redis));
    } catch (error) {
      if (error instanceof OperatorError) throw error;
      throw new GatewayError("store_unavailable", inStoreWords(error), { cause: error });
    }
  }

  return {
    run,
    /** The same for work that writes. @throws OperatorError also while the store says that it is older than what it confirmed */
    write: <T>(work: (nodes: RedisNodes) => Promise<T>): Promise<T> =>
      run(async (nodes) => {
        await requireWritable(nodes, undefined);
        return work(nodes);
      }),
    close(): void {
      opened?.redis.disconnect();
      opened = undefined;
    },
  };
}
