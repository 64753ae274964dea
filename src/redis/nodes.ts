import type { Redis } from "ioredis";

export interface RedisNodes {
  of(partition: number): Redis;
  /** The server of any name; for those outside the partitions, such as `tg:meta`. */
  ofName(name: string): Redis;
  all(): readonly Redis[];
  /** How many replicas may be promoted in a server's place; missing where nobody says so. */
  replicasOf?(redis: Redis): number;
  /** True if a server has all that it confirmed; undefined where nobody has looked for losses. */
  isWritable?(redis: Redis): boolean;
  requireWritable?(servers: readonly Redis[]): void;
  /** True if replicas have all that was written so far; undefined where confirmation is off. */
  confirmed?(): Promise<boolean>;
}

export function oneNode(redis: Redis): RedisNodes {
  const all = [redis];
  return { of: () => redis, ofName: () => redis, all: () => all };
}
