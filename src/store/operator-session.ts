import type { Redis } from "ioredis";
import { GatewayError } from "../core/errors.ts";
import { OperatorError } from "./accounts.ts";
import { createClient, readFacts } from "./connection.ts";

/** Pages of records take longer than what a customer waits for. */
const COMMAND_TIMEOUT_MS = 5000;

export type OperatorSession = ReturnType<typeof createOperatorSession>;

/**
 * A connection of the console's own, made when somebody looks: what operators read in bulk never stands in front of a
 * customer's request.
 * @param options.partitions used at the very first start of a store only
 */
export function createOperatorSession(options: { redisUrl: string; partitions: number }) {
  let opened: { redis: Redis; ready: Promise<void> } | undefined;

  async function connect(redis: Redis): Promise<void> {
    let why = "no answer";
    redis.on("error", (error: NodeJS.ErrnoException) => {
      why = error.message || error.code || why;
    });
    try {
      await redis.connect();
      // Refuses a store that may evict money.
      await readFacts(redis, options.partitions);
    } catch (error) {
      redis.disconnect();
      opened = undefined;
      throw error instanceof Error && error.message === "Connection is closed." ? new Error(why) : error;
    }
  }

  return {
    /**
     * Does an operator's work against Redis.
     * @throws OperatorError as it is; GatewayError `store_unavailable` for everything else
     */
    async run<T>(work: (redis: Redis) => Promise<T>): Promise<T> {
      try {
        if (!opened) {
          const redis = createClient(options.redisUrl, COMMAND_TIMEOUT_MS);
          opened = { redis, ready: connect(redis) };
        }
        const { redis, ready } = opened;
        await ready;
        return await work(redis);
      } catch (error) {
        if (error instanceof OperatorError) throw error;
        const why = error instanceof Error ? error.message : String(error);
        throw new GatewayError("store_unavailable", why, { cause: error });
      }
    },
    close(): void {
      opened?.redis.disconnect();
      opened = undefined;
    },
  };
}
