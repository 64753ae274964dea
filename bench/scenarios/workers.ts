import { cpus } from "node:os";
import { cpuUs, processTree } from "../cpu.ts";
import { emptyStore, issueKeys } from "../keys.ts";
import { type LoadResult, saturate, warmUp, writeTargets } from "../load/wrk.ts";
import { generationTarget } from "../requests.ts";
import type { Context, Outcome, Scenario } from "../scenario.ts";
import { startGateway } from "../subjects/gateway.ts";
import { judge, short } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { median } from "./compare.ts";

const KEYS = 1000;
const CONNECTIONS = 64;
/** Where load, Redis and upstream do not stand in the way of two workers. */
const FREE_CORES_MIN = 4;
const CORES = cpus().length < 2 ? "0" : "0-1";

/** One stretch of load on a gateway of some workers. */
interface Stretch {
  load: LoadResult;
  /** Of each of its processes, microseconds per request, greatest first. */
  shares: number[];
}

export const workers: Scenario = {
  title: "Two workers",
  quick: false,
  needs: ["taskset", "wrk", "nginx"],
  targets: ["workers"],
  async run(context): Promise<Outcome> {
    const unknown = await refusedSetting(context);
    if (unknown !== undefined) {
      const verdicts = [judge("workers", 1, "no such setting")];
      const method = "This gateway does not know `server.workers`.";
      return { method, tables: [], verdicts, disturbed: [], figures: { unknown } };
    }
    const one: Stretch[] = [];
    const two: Stretch[] = [];
    for (let round = 1; round <= context.rounds; round++) {
      one.push(await once(context, 1));
      two.push(await once(context, 2));
      context.progress(
        `  round ${round}: ${short(rate(one.at(-1)!))}/s with one, ${short(rate(two.at(-1)!))}/s with two`,
      );
    }
    const measured = median(two.map(rate)) / median(one.map(rate));
    // Each of two free cores would be filled by the busiest process of its gateway.
    const estimated = median(one.map(busiest)) / median(two.map(busiest));
    const free = cpus().length >= FREE_CORES_MIN;
    const scaling = free ? measured : estimated;
    const reached = free
      ? `${short(measured)} x`
      : `${short(estimated)} x, computed from CPU (too few cores here)`;
    return {
      method: `The load of "Generation" on a gateway that may use two cores. ${
        free
          ? "The figure is that of the requests per second."
          : "This machine has no two cores to spare, for load, Redis and upstream need one; so the figure is computed: the CPU per request of one worker over that of the busier of two, which is what two free cores would show if nothing else were in the way."
      }`,
      tables: [
        {
          columns: ["", "requests/s", "CPU us per request, in all", "of the busiest process"],
          rows: (
            [
              ["one worker", one],
              ["two workers", two],
            ] as const
          ).map(([label, stretches]) => [
            label,
            median(stretches.map(rate)).toFixed(0),
            short(median(stretches.map(total))),
            short(median(stretches.map(busiest))),
          ]),
        },
      ],
      verdicts: [judge("workers", scaling, reached)],
      disturbed: [],
      figures: { one, two, measured, estimated },
    };
  },
};

const rate = ({ load }: Stretch): number => load.requests / load.seconds;
const total = ({ shares }: Stretch): number => shares.reduce((sum, share) => sum + share, 0);
const busiest = ({ shares }: Stretch): number => shares[0]!;

/** The gateway's message if it does not take the setting. */
async function refusedSetting({ world, trees }: Context): Promise<string | undefined> {
  try {
    const running = await startGateway(world, trees[0] as Tree, { server: "workers: 2" });
    await running.stop();
    return undefined;
  } catch (error) {
    const { message } = error as Error;
    if (!message.includes("workers")) throw error;
    return message;
  }
}

async function once({ world, trees, seconds, warmUpSeconds }: Context, count: number): Promise<Stretch> {
  const [tree] = trees as [Tree];
  await emptyStore(world);
  const keys = await issueKeys(tree, world.redis, KEYS);
  const running = await startGateway(world, tree, { server: `workers: ${count}`, cores: CORES });
  try {
    const targets = writeTargets(
      world.folder,
      "targets",
      keys.map(({ key }) => generationTarget(key)),
    );
    const load = (length: number) =>
      saturate(world.folder, running.url, targets, { seconds: length, connections: CONNECTIONS });
    await warmUp(load, warmUpSeconds);
    const pids = processTree(running.pid);
    const before = pids.map((pid) => cpuUs([pid]));
    const result = await load(seconds);
    if (result.unsuccessful + result.broken > 0) throw new Error("not every request was admitted");
    const shares = pids.map((pid, at) => (cpuUs([pid]) - before[at]!) / result.requests);
    return { load: result, shares: shares.sort((a, b) => b - a) };
  } finally {
    await running.stop();
  }
}
