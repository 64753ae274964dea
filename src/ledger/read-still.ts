import type { ChainableCommander, Redis } from "ioredis";
import type { RequestRecord } from "../records/records.ts";
import { answersOf } from "../redis/pipelines.ts";

/**
 * Reads related records at one state of each request. States never return, so the same state before and after means that it
 * held during the reads; else undefined. No MULTI: a full Redis refuses even reads in it.
 */
export async function readStill<Answers extends unknown[], Item>(
  redis: Redis,
  items: readonly Item[],
  nameOf: (item: Item) => string,
  reads: (pipe: ChainableCommander, item: Item) => ChainableCommander,
): Promise<([RequestRecord, ...Answers] | undefined)[]> {
  if (items.length === 0) return [];
  const pipe = redis.pipeline();
  for (const item of items) reads(pipe.hgetall(nameOf(item)), item).hget(nameOf(item), "state");
  const answers = answersOf<unknown>(await pipe.exec());
  const each = answers.length / items.length;
  return items.map((_, at) => {
    const read = answers.slice(at * each, (at + 1) * each);
    const stateAfter = read.pop();
    const [record] = read as [RequestRecord];
    return (record.state ?? null) === stateAfter ? (read as [RequestRecord, ...Answers]) : undefined;
  });
}
