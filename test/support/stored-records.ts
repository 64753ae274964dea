import type { Redis } from "ioredis";
import { countersOf, countersText } from "../../src/records/packed-fields.ts";
import type { COUNTER_FIELDS } from "../../src/records/records.ts";

type Counters = Partial<Record<keyof typeof COUNTER_FIELDS, string>>;

/** Counters in the record of a key or an account of this name. */
export const readCounters = async (redis: Pick<Redis, "hget">, name: string): Promise<Counters> =>
  countersOf(await redis.hget(name, "counters"));

/** Changes it past the scripts; a function changes a number. */
export async function changeCounters(
  redis: Pick<Redis, "hget" | "hset">,
  name: string,
  changes: { [Field in keyof Counters]: string | number | ((earlier: number) => number) },
): Promise<void> {
  const counters: Record<string, string | undefined> = { ...(await readCounters(redis, name)) };
  for (const [field, change] of Object.entries(changes)) {
    counters[field] = String(typeof change === "function" ? change(Number(counters[field])) : change);
  }
  await redis.hset(name, "counters", countersText(counters));
}

/** Sets fields of a key past the scripts; null removes one. */
export async function setKeyFields(
  redis: Pick<Redis, "hset" | "hdel">,
  name: string,
  fields: Record<string, string | number | null>,
): Promise<void> {
  const removed = Object.keys(fields).filter((field) => fields[field] === null);
  const set = Object.entries(fields).flatMap(([field, value]) => (value === null ? [] : [field, value]));
  if (set.length > 0) await redis.hset(name, ...set);
  // An ADMIT makes it again.
  await redis.hdel(name, "terms", ...removed);
}
