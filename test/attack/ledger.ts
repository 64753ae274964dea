import type { Redis } from "ioredis";
import { entryFields } from "../../src/records/ledger-entries.ts";
import { dueRange, partitionNames } from "../../src/records/names.ts";
import type { RequestLog } from "../support/generator.ts";

/** Tasks that were made, and the credits paid for them, all keys of a run together. */
export interface Money {
  videos: number;
  charges: number;
  /** Tasks that the generator made and nobody was charged for. */
  freeVideos: string[];
  /** Charges of tasks that the generator did not make. */
  chargesWithoutVideo: string[];
}

/**
 * Reads the ledger of all accounts and compares it with the generator's own record.
 * @param sinceMs when the run began: earlier entries are not the generator's
 */
export async function compareMoney(
  redis: Redis,
  requests: readonly RequestLog[],
  sinceMs: number,
): Promise<Money> {
  const made = new Set(
    requests.flatMap(({ method, taskId }) => (method === "POST" && taskId !== undefined ? [taskId] : [])),
  );
  const charged = await chargedTasks(redis, sinceMs);
  return {
    videos: made.size,
    charges: charged.size,
    freeVideos: [...made].filter((task) => !charged.has(task)),
    chargesWithoutVideo: [...charged].filter((task) => !made.has(task)),
  };
}

/** Tasks that were charged and not refunded. */
async function chargedTasks(redis: Redis, sinceMs: number): Promise<Set<string>> {
  const partitions = Number(await redis.hget("tg:meta", "partitions"));
  const charged = new Set<string>();
  const refunded = new Set<string>();
  for (let partition = 0; partition < partitions; partition++) {
    for (const [, fields] of await redis.xrange(partitionNames(partition).ledger, sinceMs, "+")) {
      const { task_id: task = "", type, reason } = entryFields(fields);
      if (type === "consume") charged.add(task);
      if (reason === "refund") refunded.add(task);
    }
  }
  return charged.difference(refunded);
}

/** Holds that are not settled yet. */
export async function openHolds(redis: Redis): Promise<number> {
  const partitions = Number(await redis.hget("tg:meta", "partitions"));
  let open = 0;
  for (let partition = 0; partition < partitions; partition++) {
    open += await redis.zcount(partitionNames(partition).due, ...dueRange("holds"));
  }
  return open;
}
