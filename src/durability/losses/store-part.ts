import type { Redis } from "ioredis";

export interface StorePart {
  redis: Redis;
  within<T>(work: Promise<T>): Promise<T>;
  has(name: string): boolean;
  nowMs(): number;
  /** Undefined where confirmation is off. */
  confirmed?: (() => Promise<boolean>) | undefined;
  meta: {
    redis: Redis;
    /** Its last known losses count while it is unavailable. */
    isAway: boolean;
  };
}
