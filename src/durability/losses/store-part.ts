import type { Redis } from "ioredis";

/** What one primary has of a store. */
export interface StorePart {
  redis: Redis;
  /** Limits the time of a command. */
  within<T>(work: Promise<T>): Promise<T>;
  /** Whether a Redis name is on this primary. */
  has(name: string): boolean;
  /** The clock of this primary, Unix ms. */
  nowMs(): number;
  /** Whether replicas have all that it had answered when this part was made; undefined where that is not asked for. */
  confirmed?: (() => Promise<boolean>) | undefined;
  /** The primary of `tg:meta`, where losses of the whole store are reported. */
  meta: {
    redis: Redis;
    /** What it said last counts while it is away. */
    isAway: boolean;
  };
}
