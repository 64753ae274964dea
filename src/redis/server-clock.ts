import type { Redis } from "ioredis";

/** A server's clock, Unix ms. Times in a record are those of its own server. */
export async function storeNowMs(redis: Redis): Promise<number> {
  const [seconds, microseconds] = await redis.time();
  return Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000);
}

/** Asks each server's clock once; the same server has the same answer from then on. */
export function clocks(): (redis: Redis) => Promise<number> {
  const asked = new Map<Redis, Promise<number>>();
  return (redis) => {
    const nowMs = asked.get(redis) ?? storeNowMs(redis);
    asked.set(redis, nowMs);
    return nowMs;
  };
}
