import { cpSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { createScriptRunner, itemOf } from "../../src/redis/script-runner.ts";
import { freePort } from "../../src/sandbox/redis.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { observe } from "../../src/scripts/tasks.ts";
import { emptyStore, issueKeys } from "../keys.ts";
import { startPinned } from "../processes.ts";
import { partitions } from "../recorder.ts";
import type { Context, Outcome, Scenario } from "../scenario.ts";
import { judge, short } from "../targets.ts";
import type { Tree } from "../tree.ts";
import { admit, each, newTask, newTaskId, TIERS } from "./drive.ts";

const KEYS = 100;
/** To a call, as a gateway sends them under load. */
const ITEMS = 12;
const CALLS = 250;
/** Valgrind runs a program some fifty times slower. */
const START_WITHIN_MS = 300_000;
const DATA = JSON.stringify({ task_id: "x".repeat(32), status: "completed", video_url: "x".repeat(200) });

/** What `lua/observe.lua` has for webhooks, without which it tells nobody of an end. */
const CUTS: readonly [from: string, to: string][] = [
  ["--@include audit due events limits", "--@include audit due limits"],
  [
    'limited, webhooks = unpack(call("HMGET", account, "limited", "webhooks"))',
    'limited = call("HGET", account, "limited")',
  ],
  ["local limited, webhooks\n", "local limited\n"],
  [
    `local callback = record.callback
if (webhooks or callback) and not record.uncollected then
  add_event(account, now, account_id, webhooks, "task." .. status, request_id, data,
    '{"task_id":"' .. (record.task_id or "") .. '","status":"' .. status .. '"}', callback)
end
`,
    "",
  ],
];

interface Open {
  generation: Generation;
  taskId: string;
}

/** What tells of a task's end, and what it costs with webhooks and without, in instructions. */
interface Cost {
  who: string;
  whole: number;
  cut: number;
}

export const taskEnds: Scenario = {
  title: "Webhooks: what they cost a task that ends without an endpoint",
  quick: false,
  needs: ["taskset", "valgrind"],
  targets: ["untold"],
  async run(context): Promise<Outcome> {
    const { world, trees, progress } = context;
    const [tree] = trees as [Tree];
    const { open, data } = await givenOpenTasks(context);
    const folder = join(tree.root, "lua");
    const cut = withoutWebhooks(world.folder, folder);
    const costs: Cost[] = [];
    for (const isClient of [false, true]) {
      const cost = {
        who: isClient ? "a client's poll" : "the sweeper's poll",
        whole: await instructions(context, { data, open, folder, isClient }),
        cut: await instructions(context, { data, open, folder: cut, isClient }),
      };
      costs.push(cost);
      progress(`  ${cost.who}: ${short(cost.whole / 1000)} and ${short(cost.cut / 1000)} thousand`);
    }
    return {
      method: `Instructions of Redis within EVALSHA for each task that ends (OBSERVE, ${ITEMS} to a call, ${CALLS} calls over ${KEYS} accounts without webhook endpoints), counted by callgrind; beside the same script without its code for webhooks.`,
      tables: [
        {
          columns: ["ended by", "thousand instructions", "without webhooks", ""],
          rows: costs.map((cost) => [
            cost.who,
            short(cost.whole / 1000),
            short(cost.cut / 1000),
            `${(100 * (cost.whole / cost.cut - 1)).toFixed(2)} % more`,
          ]),
        },
      ],
      verdicts: [
        judge("untold", Math.max(...costs.map(({ whole, cut: without }) => 100 * (whole / without - 1)))),
      ],
      disturbed: [],
      figures: { costs },
    };
  },
};

/** Charged tasks that run, and a copy of the store that has them. */
async function givenOpenTasks({ world, trees }: Context): Promise<{ open: Open[]; data: string }> {
  const [tree] = trees as [Tree];
  await emptyStore(world);
  const keys = await issueKeys(tree, world.redis, KEYS);
  const parts = await partitions(world);
  const { store, close } = await tree.openStore(world.redisUrl);
  const open: Open[] = [];
  await each(
    Array.from({ length: (CALLS + 1) * ITEMS }, (_, at) => keys[at % KEYS]!),
    async ({ keyId, accountId }) => {
      const key = tree.keyRef(keyId, accountId, tree.partitionOf(accountId, parts));
      const [generation, taskId] = [await admit(store, key), newTaskId()];
      await store.bind(generation, newTask(taskId, 3_600_000), TIERS);
      open.push({ generation, taskId });
    },
  );
  await close();
  await world.redis.save();
  const data = mkdtempSync(join(world.folder, "open-tasks-"));
  cpSync(join(world.folder, "redis", "dump.rdb"), join(data, "dump.rdb"));
  return { open, data };
}

/** @throws Error where the script is not as it was when this was written */
function withoutWebhooks(home: string, folder: string): string {
  const copy = mkdtempSync(join(home, "lua-"));
  cpSync(folder, copy, { recursive: true });
  const file = join(copy, "observe.lua");
  let text = readFileSync(file, "utf8");
  for (const [from, to] of CUTS) {
    if (text.split(from).length !== 2) throw new Error(`observe.lua has not once: ${from}`);
    text = text.replace(from, () => to);
  }
  writeFileSync(file, text);
  return copy;
}

/** For each task that ends, of a Redis that starts with these tasks. */
async function instructions(
  { world }: Context,
  {
    data,
    open,
    folder,
    isClient,
  }: { data: string; open: readonly Open[]; folder: string; isClient: boolean },
): Promise<number> {
  const home = mkdtempSync(join(world.folder, "callgrind-"));
  mkdirSync(join(home, "redis"));
  cpSync(join(data, "dump.rdb"), join(home, "redis", "dump.rdb"));
  const port = await freePort();
  const server = await startPinned(
    "valgrind",
    [
      ...["--tool=callgrind", "--toggle-collect=evalShaCommand", `--callgrind-out-file=${home}/out`],
      ...[
        "redis-server",
        "--port",
        String(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        join(home, "redis"),
        "--save",
        "",
      ],
    ],
    { folder: home, name: "redis" },
  );
  const redis = new Redis({ port, host: "127.0.0.1", retryStrategy: () => 100, maxRetriesPerRequest: null });
  redis.on("error", () => undefined);
  try {
    const deadlineMs = performance.now() + START_WITHIN_MS;
    while ((await redis.dbsize().catch(() => 0)) === 0) {
      if (performance.now() > deadlineMs) throw new Error("Redis did not start under valgrind");
      await delay(100);
    }
    const { send } = createScriptRunner(redis, { folder });
    for (let call = 0; call <= CALLS; call++) {
      const items = open.slice(call * ITEMS, (call + 1) * ITEMS).map(({ generation, taskId }) => {
        const { key, requestId } = generation;
        return itemOf(observe, {
          ...{ accountId: key.accountId, partition: key.partition, status: "completed", data: DATA },
          ...{ refundFailed: true, pollMs: 5000, task: { taskId, requestId, creatorKeyId: key.keyId } },
          ...(isClient && { poller: { key, tiers: TIERS } }),
        });
      });
      // The first call is by EVAL, which is not counted.
      for (const reply of await send(observe, items))
        if (!Array.isArray(reply) || reply[0] !== "finished") throw new Error(`a task did not end: ${reply}`);
    }
    // The connection ends before an answer.
    void redis.shutdown("NOSAVE").catch(() => undefined);
    await server.ended;
  } finally {
    redis.disconnect();
    await server.stop();
  }
  const collected = /Collected : (\d+)/.exec(readFileSync(join(home, "redis.log"), "utf8"))?.[1];
  return Number(collected) / (CALLS * ITEMS);
}
