import { setTimeout as delay } from "node:timers/promises";
import { keyRef, partitionOf } from "../../src/records/names.ts";
import { cpuUs, processTree } from "../cpu.ts";
import { watchCore } from "../foreign.ts";
import { emptyStore, issueKeys } from "../keys.ts";
import { readMetrics } from "../metrics.ts";
import { partitions } from "../recorder.ts";
import type { Outcome, Scenario } from "../scenario.ts";
import { startGateway } from "../subjects/gateway.ts";
import { judge, short } from "../targets.ts";
import { OUR_TREE, openStore } from "../tree.ts";
import { admit, each, newTask, newTaskId } from "./drive.ts";

const TASKS = 100_000;
const KEYS = 1000;
const WARM_UP_MS = 10_000;
const SECONDS = 30;
/** When they are first due: before the gateway has started. */
const POLL_MS = 1000;

export const sweeper: Scenario = {
  title: "Sweeper with 100,000 open tasks",
  quick: false,
  needs: ["taskset", "nginx"],
  targets: ["sweeper"],
  async run({ world }): Promise<Outcome> {
    await emptyStore(world);
    const keys = await issueKeys(OUR_TREE, world.redis, KEYS);
    const parts = await partitions(world);
    const { store, close } = await openStore(world.redisUrl);
    await each(
      Array.from({ length: TASKS }, (_, n) => keys[n % KEYS]!),
      async ({ keyId, accountId }) => {
        const key = keyRef(keyId, accountId, partitionOf(accountId, parts));
        await store.bind(await admit(store, key), newTask(newTaskId(), POLL_MS));
      },
    );
    await close();
    const running = await startGateway(world, OUR_TREE);
    try {
      await delay(WARM_UP_MS);
      const pids = processTree(running.pid);
      const watched = watchCore(pids);
      const before = {
        us: cpuUs(pids),
        redisUs: cpuUs([world.redisPid]),
        items: await items(running.adminUrl!),
      };
      await delay(SECONDS * 1000);
      const share = (cpuUs(pids) - before.us) / 1e6 / SECONDS;
      const redisShare = (cpuUs([world.redisPid]) - before.redisUs) / 1e6 / SECONDS;
      const commandsPerSecond = ((await items(running.adminUrl!)) - before.items) / SECONDS;
      const foreign = watched.end();
      const percent = (part: number): string => `${short(part * 100)} %`;
      return {
        method: `${TASKS} tasks that are all due and still run upstream; a gateway without clients looks after them for ${SECONDS} s, with the sweeper's settings at their defaults.`,
        tables: [
          {
            columns: ["", "while idle"],
            rows: [
              ["CPU of the gateway, of one core", percent(share)],
              ["CPU of Redis", percent(redisShare)],
              ["dealt with, per second", short(commandsPerSecond)],
            ],
          },
        ],
        verdicts: [judge("sweeper", share * 100)],
        disturbed: foreign ? [foreign] : [],
        figures: { share, redisShare, commandsPerSecond },
      };
    } finally {
      await running.stop();
    }
  },
};

/** Items that the sweeper has handled since the start. */
const items = async (adminUrl: string): Promise<number> =>
  (await readMetrics(adminUrl))("tollgate_sweeper_items_total");
