import type { Redis } from "ioredis";
import { entryFields } from "../../src/records/ledger-entries.ts";
import { partitionNames } from "../../src/records/names.ts";
import { accountOf, moneyText } from "../../src/records/packed-fields.ts";

/** Everything of a partition as DUMP gives it, by name. */
export type Dump = ReadonlyMap<string, { bytes: Buffer; expiresAtMs: number }>;

const namesOf = async (redis: Redis, partition: number): Promise<string[]> => {
  const tag = partitionNames(partition).done.slice(0, -"done".length);
  return (await redis.keys(`${tag}*`)).sort();
};

export async function dump(redis: Redis, partition: number): Promise<Dump> {
  const entries = (await namesOf(redis, partition)).map(async (name) => {
    const [bytes, expiresAtMs] = await Promise.all([redis.dumpBuffer(name), redis.pexpiretime(name)]);
    return [name, { bytes: bytes!, expiresAtMs: Math.max(0, expiresAtMs) }] as const;
  });
  return new Map(await Promise.all(entries));
}

export async function restore(redis: Redis, dumped: Dump): Promise<void> {
  for (const [name, { bytes, expiresAtMs }] of dumped)
    await redis.restore(name, expiresAtMs, bytes, "REPLACE", "ABSTTL");
}

export async function clear(redis: Redis, partition: number): Promise<void> {
  for (const name of await namesOf(redis, partition)) await redis.del(name);
}

/** Content of a partition, without values that differ between two runs: the ids of ledger entries. */
export async function contents(redis: Redis, partition: number): Promise<Record<string, unknown>> {
  const names = await namesOf(redis, partition);
  return Object.fromEntries(
    await Promise.all(names.map(async (name) => [name, await contentOf(redis, name)] as const)),
  );
}

export async function contentOf(redis: Redis, name: string): Promise<unknown> {
  switch (await redis.type(name)) {
    case "hash":
      return withoutEntry(await redis.hgetall(name));
    case "set":
      return (await redis.smembers(name)).sort();
    case "zset":
      return redis.zrange(name, "0", "-1", "WITHSCORES");
    case "list":
      return redis.lrange(name, 0, -1);
    case "stream": {
      const entries = await redis.xrange(name, "-", "+");
      return entries.map(([, fields]) => ({ ...entryFields(fields), previous: "" }));
    }
    default:
      return redis.get(name);
  }
}

const withoutEntry = (fields: Readonly<Record<string, string>>): object =>
  fields.money === undefined
    ? fields
    : { ...fields, money: moneyText({ ...accountOf(fields), last_entry: "" }) };
