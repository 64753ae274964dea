import { cpSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import { keyRef, partitionOf } from "../../src/records/names.ts";
import { createScriptRunner, itemOf } from "../../src/redis/script-runner.ts";
import { freePort } from "../../src/sandbox/redis.ts";
import { admit, bind, type Generation } from "../../src/scripts/holds.ts";
import type { Item, ScriptFile } from "../../src/scripts/script-definition.ts";
import { observe } from "../../src/scripts/tasks.ts";
import { emptyStore, issueKeys } from "../keys.ts";
import { startPinned } from "../processes.ts";
import { partitions } from "../recorder.ts";
import type { Context, Outcome, Scenario } from "../scenario.ts";
import { judge, short } from "../targets.ts";
import { OUR_TREE, openStore } from "../tree.ts";
import { median } from "./compare.ts";
import { admit as admitOne, each, generationOf, newTask, newTaskId, TIERS } from "./drive.ts";

const KEYS = 100;
/** To a call, as a gateway sends them under load. */
const ITEMS = 12;
const CALLS = 250;
const ROUNDS = 3;
/** Valgrind runs a program some fifty times slower. */
const START_WITHIN_MS = 300_000;
const DATA = JSON.stringify({ task_id: "x".repeat(32), status: "completed", video_url: "x".repeat(200) });

/** The code for webhooks in each script, by file: without it no event is queued, and no alert comes before the credits end. */
const CUTS: Readonly<Record<string, readonly (readonly [from: string, to: string])[]>> = {
  "generations/observe.lua": [
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
  ],
  "generations/admit.lua": [
    [" digest callback restrictions", " digest restrictions"],
    ['if callback ~= "" then rest = rest .. " callback=" .. callback end\n', ""],
  ],
  "include/ledger.lua": [
    ["--@include events money numbers", "--@include money numbers"],
    [
      `  local is_refund = amount > 0 and request_id ~= ""
  local alerts, alerted = extras ~= "" and not is_refund and call("HGET", account, "alerts"), nil
  if alerts then
    -- Before the first write: what it writes can run twice.
    local available = balance - held_before - held
    -- The id of an entry is that of its partition alone, and a receiver of many accounts ignores an id that it has seen.
    alerted = alert_credits(account, tonumber(at), account_id, alerts, available, amount > 0, account_id .. "-" .. previous)
  end
`,
      "",
    ],
    ['  if alerted then call("HSET", account, "alerted", alerted) end\n', ""],
  ],
};
/** Alerts are a function of their own. */
const ALERTS = /^local function alert_credits[\s\S]*?^end\n/m;

interface Open {
  generation: Generation;
  taskId: string;
}

/** Cost of webhooks for an account without an endpoint, in instructions. */
interface Cost {
  what: string;
  whole: number;
  cut: number;
}

/** A call of a script, and what it must answer to each item. */
interface Call {
  script: ScriptFile;
  items: Item[];
  outcome: string;
}

/** The calls for some of the open tasks. */
type Work = (open: readonly Open[], folder: string) => Iterable<Call>;

const WORKS: Readonly<Record<string, Work>> = {
  "an end, by a client's poll": (open) => [ended(open, true)],
  "an end, by the sweeper's poll": (open) => [ended(open, false)],
  "a generation: ADMIT and BIND": (open, folder) => {
    const fresh = open.map(({ generation }) => ({
      generation: generationOf(generation.key),
      taskId: newTaskId(),
    }));
    return [admitted(fresh, folder), bound(fresh)];
  },
};

export const taskEnds: Scenario = {
  title: "Webhooks: what they cost a generation and its end without an endpoint",
  quick: false,
  needs: ["taskset", "valgrind"],
  targets: ["untold"],
  async run(context): Promise<Outcome> {
    const { world, progress } = context;
    const given = await givenOpenTasks(context);
    const folder = join(OUR_TREE.root, "lua");
    const cut = withoutWebhooks(world.folder, folder);
    const costs: Cost[] = [];
    for (const [what, work] of Object.entries(WORKS)) {
      const rounds: { whole: number; cut: number }[] = [];
      // Hashes begin with another seed each time, which is 1 % of the instructions.
      while (rounds.length < ROUNDS)
        rounds.push({
          whole: await instructions(context, { ...given, folder, work }),
          cut: await instructions(context, { ...given, folder: cut, work }),
        });
      const cost = {
        what,
        whole: median(rounds.map(({ whole }) => whole)),
        cut: median(rounds.map((round) => round.cut)),
      };
      costs.push(cost);
      progress(`  ${what}: ${short(cost.whole / 1000)} and ${short(cost.cut / 1000)} thousand`);
    }
    return {
      method: `Instructions of Redis within EVALSHA (${ITEMS} to a call, ${CALLS} calls over ${KEYS} accounts without webhook endpoints), counted by callgrind, the median of ${ROUNDS} rounds; beside the same scripts without their code for webhooks.`,
      tables: [
        {
          columns: ["", "thousand instructions", "without webhooks", ""],
          rows: costs.map(({ what, whole, cut }) => [
            what,
            short(whole / 1000),
            short(cut / 1000),
            `${(100 * (whole / cut - 1)).toFixed(2)} % more`,
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
async function givenOpenTasks({ world }: Context): Promise<{ open: Open[]; data: string }> {
  await emptyStore(world);
  const keys = await issueKeys(OUR_TREE, world.redis, KEYS);
  const parts = await partitions(world);
  const { store, close } = await openStore(world.redisUrl);
  const open: Open[] = [];
  await each(
    Array.from({ length: (CALLS + 1) * ITEMS }, (_, at) => keys[at % KEYS]!),
    async ({ keyId, accountId }) => {
      const key = keyRef(keyId, accountId, partitionOf(accountId, parts));
      const [generation, taskId] = [await admitOne(store, key), newTaskId()];
      await store.bind(generation, newTask(taskId, 3_600_000));
      open.push({ generation, taskId });
    },
  );
  await close();
  await world.redis.save();
  const data = mkdtempSync(join(world.folder, "open-tasks-"));
  cpSync(join(world.folder, "redis", "dump.rdb"), join(data, "dump.rdb"));
  return { open, data };
}

/** @throws Error where a script is not as it was when this was written */
export function withoutWebhooks(home: string, folder: string): string {
  const copy = mkdtempSync(join(home, "lua-"));
  cpSync(folder, copy, { recursive: true });
  for (const [name, cuts] of Object.entries(CUTS)) {
    const file = join(copy, name);
    let text = readFileSync(file, "utf8");
    for (const [from, to] of cuts) {
      if (text.split(from).length !== 2) throw new Error(`${name} has not once: ${from}`);
      text = text.replace(from, () => to);
    }
    writeFileSync(file, text.replace(ALERTS, ""));
  }
  return copy;
}

function ended(open: readonly Open[], isClient: boolean): Call {
  const items = open.map(({ generation: { key, requestId }, taskId }) =>
    itemOf(observe, {
      ...{ accountId: key.accountId, partition: key.partition, status: "completed", data: DATA },
      ...{ refundFailed: true, pollMs: 5000, task: { taskId, requestId, creatorKeyId: key.keyId } },
      ...(isClient && { poller: { key, tiers: TIERS } }),
    }),
  );
  return { script: observe, items, outcome: "finished" };
}

/** The place of the callback among the arguments of ADMIT, which its copy without webhooks does not take. */
const CALLBACK_AT = 10;

function admitted(open: readonly Open[], folder: string): Call {
  const takesCallback = readFileSync(join(folder, "generations/admit.lua"), "utf8").includes(
    " digest callback ",
  );
  const items = open.map(({ generation }) => {
    const item = itemOf(admit, { generation, tiers: TIERS, notAfterMs: Number.MAX_SAFE_INTEGER });
    return takesCallback ? item : { ...item, args: item.args.toSpliced(CALLBACK_AT, 1) };
  });
  return { script: admit, items, outcome: "admitted" };
}

function bound(open: readonly Open[]): Call {
  const items = open.map(({ generation, taskId }) =>
    itemOf(bind, { ...generation, task: newTask(taskId, 3_600_000) }),
  );
  return { script: bind, items, outcome: "bound" };
}

/** For each task, of a Redis that starts with these tasks. */
async function instructions(
  { world }: Context,
  { data, open, folder, work }: { data: string; open: readonly Open[]; folder: string; work: Work },
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
      // The first call of a script is by EVAL, which is not counted.
      for (const { script, items, outcome } of work(open.slice(call * ITEMS, (call + 1) * ITEMS), folder))
        for (const reply of await send(script, items))
          if (!Array.isArray(reply) || reply[0] !== outcome) throw new Error(`not ${outcome}: ${reply}`);
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
