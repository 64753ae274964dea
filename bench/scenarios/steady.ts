import { readFileSync } from "node:fs";
import { processTree, residentBytes } from "../cpu.ts";
import { watchCore } from "../foreign.ts";
import { emptyStore, issueKeys } from "../keys.ts";
import { type PacedResult, pace } from "../load/paced.ts";
import { readMetrics } from "../metrics.ts";
import { generationTarget } from "../requests.ts";
import type { Context, Outcome, Scenario } from "../scenario.ts";
import { startGateway } from "../subjects/gateway.ts";
import type { RunningSubject } from "../subjects/subject.ts";
import { judge, short } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { median } from "./compare.ts";

const KEYS = 1000;
const LOAD = { perSecond: 1000, connections: 8 };
const WARM_UP_SECONDS = 5;
const STALL_SECONDS = 60;
/** The delay of the event loop is read by a timer of this period, which each reading contains. prom-client's default. */
const PRECISION_MS = 10;
const MEMORY_MINUTES = 10;
const SAMPLE_MS = 5000;
/** Over ten minutes a machine may have a bad moment; it is said. */
const UNSUCCESSFUL_MAX = 0.01;
/** Counted from zero, the first minute that counts: what is allocated once is there by then. */
const FIRST_MINUTE = 2;

/** Starts a gateway at a fixed load, and lets `watch` look at it once it is warm. */
async function underLoad<T>(
  { world, trees }: Context,
  watch: (
    running: RunningSubject,
    load: (seconds: number, unsuccessfulMax?: number) => Promise<PacedResult>,
  ) => Promise<T>,
): Promise<T> {
  const [tree] = trees as [Tree];
  await emptyStore(world);
  const targets = (await issueKeys(tree, world.redis, KEYS)).map(({ key }) => generationTarget(key));
  const running = await startGateway(world, tree);
  try {
    const load = (seconds: number, unsuccessfulMax = 0) =>
      pace(world.folder, running.url, targets, { ...LOAD, seconds, unsuccessfulMax });
    await load(WARM_UP_SECONDS);
    return await watch(running, load);
  } finally {
    await running.stop();
  }
}

export const stall: Scenario = {
  title: "Event-loop stalls",
  quick: false,
  needs: ["taskset", "nginx"],
  targets: ["stall"],
  run: (context): Promise<Outcome> =>
    underLoad(context, async ({ adminUrl, pid }, load) => {
      // A reading begins a new stretch.
      await readMetrics(adminUrl!);
      const watched = watchCore([pid]);
      const waitedBeforeMs = waitedMs(pid);
      const result = await load(STALL_SECONDS);
      const lagMs = (await readMetrics(adminUrl!))("nodejs_eventloop_lag_max_seconds") * 1000;
      const stallMs = Math.max(0, lagMs - PRECISION_MS);
      const waited = waitedMs(pid) - waitedBeforeMs;
      const foreign = watched.end();
      return {
        method: `${LOAD.perSecond} generations a second for ${STALL_SECONDS} s after a warm-up. The stall is the longest delay of the gateway's own event loop (nodejs_eventloop_lag_max_seconds, less the ${PRECISION_MS} ms of the timer that reads it).`,
        tables: [
          {
            columns: ["", "ms"],
            rows: [
              ["longest stall", short(stallMs)],
              ["p50 of a request", short(result.p50Us / 1000)],
              ["p99", short(result.p99Us / 1000)],
              ["p99.9", short(result.p999Us / 1000)],
              ["slowest request", short(result.maxUs / 1000)],
              ["the process wanted the core but did not have it, in all", short(waited)],
            ],
          },
        ],
        verdicts: [judge("stall", stallMs)],
        disturbed: foreign ? [foreign] : [],
        figures: { stallMs, waitedMs: waited, ...result },
      };
    }),
};

/** How long the main thread stood ready to run while another had the core. */
const waitedMs = (pid: number): number =>
  Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[1]) / 1e6;

export const memory: Scenario = {
  title: "Resident memory over ten minutes",
  quick: false,
  needs: ["taskset", "nginx"],
  targets: ["flat"],
  run: (context): Promise<Outcome> =>
    underLoad(context, async ({ pid }, load) => {
      const samples: number[] = [];
      const pids = processTree(pid);
      const timer = setInterval(() => samples.push(residentBytes(pids) / 2 ** 20), SAMPLE_MS);
      const result = await load(MEMORY_MINUTES * 60, UNSUCCESSFUL_MAX).finally(() => clearInterval(timer));
      const perMinute = 60_000 / SAMPLE_MS;
      const minutes = Array.from({ length: MEMORY_MINUTES }, (_, minute) =>
        median(samples.slice(minute * perMinute, (minute + 1) * perMinute)),
      );
      const growth = minutes.at(-1)! / minutes[FIRST_MINUTE]!;
      const slope = (minutes.at(-1)! - minutes[FIRST_MINUTE]!) / (MEMORY_MINUTES - 1 - FIRST_MINUTE);
      return {
        method: `${LOAD.perSecond} generations a second for ${MEMORY_MINUTES} minutes, ${result.requests} in all; the resident memory is read every ${SAMPLE_MS / 1000} s. Held against each other are the medians of the last minute and of the third.`,
        tables: [
          {
            columns: ["minute", ...minutes.map((_, minute) => String(minute + 1))],
            rows: [["MiB (median)", ...minutes.map(short)]],
          },
        ],
        verdicts: [
          judge(
            "flat",
            growth,
            `${growth.toFixed(3)} x from minute 3 to 10 (${slope.toFixed(2)} MiB a minute)`,
          ),
        ],
        disturbed:
          result.unsuccessful > 0 ? [`${result.unsuccessful} requests were not answered with a 200`] : [],
        figures: { samples, ...result },
      };
    }),
};
