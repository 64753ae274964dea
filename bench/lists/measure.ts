import type { Redis } from "ioredis";
import { readInfo } from "../../src/redis/server-info.ts";
import type { Probe } from "./probe.ts";

export const PARTITIONS = 64;
/** Rows of a page. */
export const LIMIT = 100;
/** Bounds of a page, and of what another client of Redis waits for longer than while nobody asks for anything. */
const PAGE_MS_MAX = 50;
export const WAIT_MS_MAX = 2;
/** Other programs only add to a figure, so the least of these counts; of those beyond a bound there are more. */
const REPEATS = 5;
const REPEATS_MAX = 25;

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

/** How long the commands since the last reset took, µs, without those of this program. */
export async function commandsUs(redis: Redis): Promise<number[]> {
  const slow = (await redis.slowlog("GET", 10_000)) as SlowCommand[];
  const own = new Set(["info", "slowlog", "config"]);
  return slow.filter(([, , , [name = ""]]) => !own.has(name.toLowerCase())).map(([, , tookUs]) => tookUs);
}

interface Cost {
  gatewayMs: number;
  redisMs: number;
  /** The longest command. */
  commandMs: number;
  /** The worst that another client waited for. */
  waitMs: number;
  /** As `ms`, while nobody reads the page. */
  idleMs: number;
}

const isWithin = ({ gatewayMs, redisMs, commandMs, waitMs, idleMs }: Cost): boolean =>
  gatewayMs + redisMs <= PAGE_MS_MAX && Math.max(commandMs, waitMs - idleMs) <= WAIT_MS_MAX;

const NAMES = ["gatewayMs", "redisMs", "commandMs", "waitMs", "idleMs"] as const satisfies (keyof Cost)[];

/** Reads a page some times and prints it. @returns whether it is within the bounds */
export async function measure(redis: Redis, probe: Probe, page: ListPage): Promise<boolean> {
  const least = {
    gatewayMs: Infinity,
    redisMs: Infinity,
    commandMs: Infinity,
    waitMs: Infinity,
    idleMs: Infinity,
  };
  let rows = 0;
  for (let time = 0; time < REPEATS || (time < REPEATS_MAX && !isWithin(least)); time++) {
    const read = await readOnce(redis, probe, page);
    rows = read.rows;
    for (const name of NAMES) least[name] = Math.min(least[name], read.cost[name]);
  }
  const { name, filter, place } = page;
  console.log(
    [name.padEnd(24), filter.padEnd(42), place.padEnd(7), String(rows).padStart(4)]
      .concat(NAMES.map((one) => least[one].toFixed(2).padStart(7)))
      .concat(isWithin(least) ? [] : ["BEYOND"])
      .join(" "),
  );
  return isWithin(least);
}

/** Once for what it costs, and once for what another client waits for, whose PINGs cost, too. */
async function readOnce(
  redis: Redis,
  probe: Probe,
  { read }: ListPage,
): Promise<{ rows: number; cost: Cost }> {
  await redis.slowlog("RESET");
  const redisBefore = await redisMs(redis);
  const before = process.cpuUsage();
  const beganMs = performance.now();
  const rows = await read();
  const { user, system } = process.cpuUsage(before);
  const tookMs = performance.now() - beganMs;
  const ofRedisMs = (await redisMs(redis)) - redisBefore;
  const commandMs = Math.max(0, ...(await commandsUs(redis))) / 1000;
  const waitMs = await probe.during(read);
  const idleMs = await probe.idle(tookMs);
  return { rows, cost: { gatewayMs: (user + system) / 1000, redisMs: ofRedisMs, commandMs, waitMs, idleMs } };
}

export const HEADER = `${"list".padEnd(24)} ${"filter".padEnd(42)} page    rows gateway   redis command    wait    idle  (ms: CPU of both, the longest command, the longest wait of another client, the same without the page)`;
