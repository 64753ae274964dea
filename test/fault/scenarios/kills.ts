import { setTimeout as pause } from "node:timers/promises";
import { createClusterWorld } from "../cluster-world.ts";
import type { Fleet } from "../fleet.ts";
import type { History } from "../history.ts";
import { inParallel } from "../random.ts";
import { createWorld, type RunOptions } from "../world.ts";
import type { Scenario } from "./scenario.ts";
import { givenCrowd, planErrands, runErrand } from "./traffic.ts";

interface KillsSize {
  requests: number;
  kills: number;
  /** False: one more gateway sweeps, so that no claim of a killed one has to run out. */
  victimsSweep: boolean;
  /** On a Redis Cluster of three primaries. */
  clustered?: boolean;
}

/** SIGKILL at random moments of ordinary traffic; each victim is started again over the same journal. */
export const kills: Scenario<KillsSize> = {
  name: "kills",
  title: ({ requests, kills }) => `${requests} requests over 3 gateways with ${kills} random SIGKILLs`,
  full: { requests: 10_000, kills: 200, victimsSweep: true },
  short: { requests: 250, kills: 5, victimsSweep: false },
  run: runKills,
};

/** As above, on a Redis Cluster. */
export const killsOnCluster: Scenario<KillsSize> = {
  name: "kills-cluster",
  title: (size) => `on a Redis Cluster of three primaries: ${kills.title(size)}`,
  full: { requests: 4000, kills: 80, victimsSweep: true, clustered: true },
  short: { requests: 400, kills: 8, victimsSweep: false, clustered: true },
  run: runKills,
};

/** Two operators with one reference: the account is adjusted once. */
const adjustTwice = (world: Fleet, accountId: string, at: number): Promise<void> =>
  world.operate({
    ...{ kind: "adjust", accountId, taskId: "", amount: at % 2 === 0 ? 30 : -20 },
    references: [`adjust-${at}`, `adjust-${at}`],
  });

/** Two operators with a reference each: the task is refunded once, unless it failed, or has not ended. */
const refundTwice = (world: Fleet, accountId: string, taskId: string, at: number): Promise<void> =>
  world.operate({
    ...{ kind: "refund", accountId, taskId, amount: 0 },
    references: [`refund-${at}-a`, `refund-${at}-b`],
  });

async function runKills(
  options: RunOptions,
  { requests, kills, victimsSweep, clustered = false }: KillsSize,
): Promise<History> {
  const create = clustered ? createClusterWorld : createWorld;
  const world = await create(options, 3, { sweeperApart: !victimsSweep });
  try {
    const { random } = world;
    const customers = await givenCrowd(world);
    const errands = planErrands(random, requests, customers.length, 3);
    /** Before which errand which slot is hit, and how much later, so that requests are in all phases. */
    const moments = random.shuffle([...errands.keys()]).slice(0, kills);
    const plan = new Map(moments.map((at) => [at, { slot: random.int(0, 2), delayMs: random.int(0, 30) }]));
    /** Per slot, until its last victim is back: nobody is killed twice. */
    const back = world.gateways.map(() => Promise.resolve());
    const hit = async (slot: number, delayMs: number): Promise<void> => {
      await pause(delayMs);
      world.kill(slot, "random");
      await world.startIn(slot);
    };

    await inParallel(requests, 24, async (at) => {
      const planned = plan.get(at);
      if (planned) {
        const { slot, delayMs } = planned;
        await back[slot];
        back[slot] = back[slot]!.then(() => hit(slot, delayMs));
      }
      const errand = errands[at]!;
      const { status, taskId } = await runErrand(world, customers, errand);
      const { accountId } = customers[errand.customer]!;
      if (at % 7 === 0) await adjustTwice(world, accountId, at);
      if (at % 5 === 0 && status === 200) await refundTwice(world, accountId, taskId, at);
      if (at % 2000 === 1999) options.progress(`${at + 1} of ${requests} requests`);
    });
    await Promise.all(back);
    return await world.finish();
  } finally {
    await world.stop();
  }
}
