import { setTimeout as pause } from "node:timers/promises";
import { partitionNames } from "../../../src/store/names.ts";
import { createRandom } from "../../fault/random.ts";
import { judge, type Verdict } from "./judge.ts";
import { type Kill, planKills, strike } from "./kills.ts";
import { startLoad } from "./load.ts";
import { PARTITIONS, startWorld, type World } from "./world.ts";

/** The archive follows within seconds; holds of an unknown outcome end within ten. */
const QUIET_WITHIN_MS = 60_000;

export interface Run {
  kills: Record<Kill, number>;
  /** What clients were told. */
  charged: number;
  failed: number;
  granted: number;
  /** Entries that have left Redis. */
  left: number;
  verdict: Verdict;
  seconds: number;
}

export const isRight = ({ missing, doubled, wrongFolds }: Verdict): boolean =>
  missing.length + doubled.length + wrongFolds.length === 0;

/**
 * Kills gateways, PostgreSQL and Redis one after the other under load, and compares in the end what archive and Redis have
 * together with what clients were told.
 * @param options.root the source tree that is run
 */
export async function runKills(options: {
  seed: number;
  kills: number;
  root: string;
  folder: string;
  progress(line: string): void;
}): Promise<Run> {
  const { seed, root, folder, progress } = options;
  const startedMs = performance.now();
  const world = await startWorld({ root, folder });
  try {
    const random = createRandom(seed);
    const planned = planKills(random, options.kills);
    const load = startLoad(world, createRandom(seed + 1));
    const kills: Record<Kill, number> = { gateway: 0, postgres: 0, hang: 0, redis: 0 };
    for (const one of planned) {
      await strike(world, random, one);
      kills[one.kill]++;
      const done = Object.values(kills).reduce((sum, count) => sum + count, 0);
      if (done % 10 === 0) progress(`${done} kills, ${load.told.charged.size} generations`);
    }
    await load.stop();
    await quiet(world);
    const verdict = await judge(world, load.told);
    const left = await leftOf(world);
    const { charged, failed, granted } = load.told;
    return {
      kills,
      charged: charged.size,
      failed: failed.size,
      granted: granted.size,
      left,
      verdict,
      seconds: Math.round((performance.now() - startedMs) / 1000),
    };
  } finally {
    await world.stop();
  }
}

/** Until no request is open and the archive gets nothing more, at most a minute: what is not there by then is judged so. */
async function quiet(world: World): Promise<void> {
  const untilMs = performance.now() + QUIET_WITHIN_MS;
  let before = "";
  for (let same = 0; same < 10 && performance.now() < untilMs; ) {
    await pause(300);
    const now = await stateOf(world);
    same = now === before && now.startsWith("0 ") ? same + 1 : 0;
    before = now;
  }
}

/** How many requests are open, how many entries the archive has, and how many Redis. */
async function stateOf({ redis, query }: World): Promise<string> {
  let [open, stored] = [0, 0];
  for (let partition = 0; partition < PARTITIONS; partition++) {
    const { holds, polls, ledger } = partitionNames(partition);
    open += (await redis.zcard(holds)) + (await redis.zcard(polls));
    stored += await redis.xlen(ledger);
  }
  const [row] = await query<{ rows: string }>("SELECT count(*) AS rows FROM tollgate.ledger_rows");
  return `${open} ${row?.rows} ${stored}`;
}

async function leftOf({ redis }: World): Promise<number> {
  let left = 0;
  for (let partition = 0; partition < PARTITIONS; partition++)
    left += Number((await redis.hget(partitionNames(partition).trimmed, "entries")) ?? 0);
  return left;
}
