import type { Redis } from "ioredis";
import { readFacts } from "./connection.ts";
import { META } from "./names.ts";

/** Used where nobody says otherwise, at a store's very first start. */
const PARTITIONS = 64;

/** The store's number of partitions, fixed now if the store is new. */
export async function partitionsOf(redis: Redis): Promise<number> {
  const fixed = await redis.hget(META, "partitions");
  return fixed === null ? (await readFacts(redis, PARTITIONS)).partitions : Number(fixed);
}
