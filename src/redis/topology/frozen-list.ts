import type { Redis } from "ioredis";
import { META } from "../../records/names.ts";

/** Before the number of each frozen partition in `tg:meta`; the value is since when, Unix ms. */
const PREFIX = "frozen:";

export const frozenField = (partition: number): string => `${PREFIX}${partition}`;

/** The partitions that operators have frozen, each with since when (Unix ms). @param redis has `tg:meta` */
export async function listFrozen(redis: Redis): Promise<Map<number, number>> {
  const fields = Object.entries(await redis.hgetall(META));
  return new Map(
    fields.flatMap(([field, sinceMs]) =>
      field.startsWith(PREFIX) ? [[Number(field.slice(PREFIX.length)), Number(sinceMs)]] : [],
    ),
  );
}
