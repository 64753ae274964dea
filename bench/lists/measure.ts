import type { Redis } from "ioredis";
import { readInfo } from "../../src/redis/server-info.ts";

export const PARTITIONS = 64;
/** Rows of a page. */
export const LIMIT = 100;
/** Bounds of a page, and of a command of Redis. */
const PAGE_MS_MAX = 50;
const COMMAND_MS_MAX = 2;
/** Other programs only add to a figure, so the least of these counts. */
const REPEATS = 5;

export interface ListPage {
  name: string;
  filter: string;
  place: string;
  /** @returns how many rows the page has */
  read(): Promise<number>;
}

export async function logCommands(redis: Redis): Promise<void> {
  await redis.config("SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 10_000);
}

/** CPU time of Redis' main thread, ms. */
async function redisMs(redis: Redis): Promise<number> {
  const info = readInfo(await redis.info("cpu"));
  const seconds = (name: string): number => Number(info.get(`used_cpu_${name}_main_thread`));
  return 1000 * (seconds("user") + seconds("sys"));
}

type SlowCommand = [id: number, at: number, tookUs: number, args: string[]];

/** How long the commands since the last reset took, µs, in their order, without those of this program. */
async function commandsUs(redis: Redis): Promise<number[]> {
  const slow = (await redis.slowlog("GET", 10_000)) as SlowCommand[];
  const own = new Set(["info", "slowlog", "config"]);
  return slow
    .filter(([, , , [name = ""]]) => !own.has(name.toLowerCase()))
    .map(([, , tookUs]) => tookUs)
    .reverse();
}

/**
 * Reads a page some times and prints it. A command's time is the least that it took in its place, so a pause of Redis
 * does not count. @returns whether it is within the bounds
 */
export async function measure(redis: Redis, { name, filter, place, read }: ListPage): Promise<boolean> {
  let rows = await read();
  let [ofRedisMs, ofGatewayMs] = [Infinity, Infinity];
  let leastUs: number[] = [];
  for (let time = 0; time < REPEATS; time++) {
    await redis.slowlog("RESET");
    const redisBefore = await redisMs(redis);
    const before = process.cpuUsage();
    rows = await read();
    const { user, system } = process.cpuUsage(before);
    ofGatewayMs = Math.min(ofGatewayMs, (user + system) / 1000);
    ofRedisMs = Math.min(ofRedisMs, (await redisMs(redis)) - redisBefore);
    const us = await commandsUs(redis);
    leastUs = us.map((tookUs, at) => Math.min(tookUs, leastUs[at] ?? Infinity));
  }
  const commandMs = Math.max(0, ...leastUs) / 1000;
  const isWithin = commandMs <= COMMAND_MS_MAX && ofRedisMs + ofGatewayMs <= PAGE_MS_MAX;
  const figures = [ofGatewayMs, ofRedisMs, commandMs].map((ms) => ms.toFixed(2).padStart(7));
  console.log(
    [name.padEnd(24), filter.padEnd(42), place.padEnd(7), String(rows).padStart(4), ...figures]
      .concat(isWithin ? [] : ["BEYOND"])
      .join(" "),
  );
  return isWithin;
}

export const HEADER = `${"list".padEnd(24)} ${"filter".padEnd(42)} page    rows gateway   redis command  (ms of CPU; longest command)`;
