import { join } from "node:path";
import { type Criterion, check, formatVerdict, type Verdict } from "../checker.ts";
import { type History, writeHistory } from "../history.ts";
import { createRandom, inParallel } from "../random.ts";
import { bundleSources, copySources, type Patch } from "../tree.ts";
import type { RunOptions } from "../world.ts";
import { ARCHIVE_CONTROLS } from "./controls-archive.ts";
import { RARE_INTERLEAVINGS } from "./controls-rare.ts";
import { UNMETERED_CONTROLS } from "./controls-unmetered.ts";
import { UPSTREAM_CONTROLS } from "./controls-upstream.ts";
import { WEBHOOK_CONTROLS } from "./controls-webhooks.ts";
import { crash } from "./crash.ts";
import { kills } from "./kills.ts";
import { redisLink } from "./redis-link.ts";

/** A seeded bug, and what the checker must say of it. */
export interface Control {
  name: string;
  patches: Patch[];
  run(options: RunOptions): Promise<History | Verdict>;
  /** The criterion that must be unmet. */
  caughtBy: string;
  /** Text that one of its violations must have, where the criterion has several reasons. */
  violation?: RegExp;
}

/** At a time: each has gateways and a Redis of its own. */
const WIDTH = 4;
/** Some of these never come to rest. */
const QUIESCENCE_MAX_MS = 14_000;

const quietKills = (options: RunOptions): Promise<History> =>
  kills.run(options, { requests: 150, kills: 2, victimsSweep: false });

const GENERAL: readonly Control[] = [
  {
    name: "default ioredis resend options",
    patches: [
      "autoResendUnfulfilledCommands: false,",
      "enableOfflineQueue: false,",
      "maxRetriesPerRequest: 0,",
    ].map((from) => ({ file: "src/redis/client.ts", from, to: "" })),
    run: (options) => redisLink.run(options, { requestsEach: 60, stopsMs: [], only: "reset", oneIn: 12 }),
    caughtBy: "nothing sent twice",
  },
  {
    name: "counters in place of slot sets, given back whenever an end is seen",
    patches: [
      {
        file: "lua/include/reply.lua",
        from: 'oldest, call("SCARD", slots)',
        to: 'oldest, tonumber(call("GET", slots) or 0)',
      },
      {
        file: "lua/generations/admit.lua",
        from: 'call("SCARD", slots)',
        to: 'tonumber(call("GET", slots) or 0)',
      },
      {
        file: "lua/generations/admit.lua",
        from: 'call("SADD", slots, request_id)',
        to: 'call("INCR", slots)',
      },
      {
        file: "lua/generations/bind.lua",
        from: 'call("SADD", (string.gsub(key_name, ":key:", ":slots:", 1)), request_id)',
        to: 'call("INCR", (string.gsub(key_name, ":key:", ":slots:", 1)))',
      },
      {
        file: "lua/generations/void.lua",
        from: 'call("SREM", slots, request_id)',
        to: 'call("DECR", slots)',
      },
      {
        file: "lua/generations/observe.lua",
        from: 'call("SREM", slots, request_id)',
        to: 'call("DECR", slots)',
      },
      {
        file: "lua/generations/observe.lua",
        from: 'if state == "finished" then',
        to: 'if state == "finished" then call("DECR", slots)',
      },
    ],
    run: quietKills,
    caughtBy: "no slot leaks, every task ends",
  },
  {
    name: "a refund without its state check",
    patches: [
      { file: "lua/generations/observe.lua", from: 'if state == "finished" then', to: "if false then" },
      {
        file: "lua/generations/observe.lua",
        from: 'if state ~= "bound" then',
        to: 'if state ~= "bound" and state ~= "finished" then',
      },
      { file: "lua/include/refund.lua", from: "if is_repeat then", to: "if false then" },
    ],
    run: quietKills,
    caughtBy: "failed tasks refunded exactly once",
  },
  {
    name: "a charge outside the script",
    patches: [
      {
        file: "lua/generations/bind.lua",
        from: 'post(account, prefix .. "ledger", bound_at, account_id, "consume", -price, state == "held" and -price or 0, price,',
        to: `local balance, held, used, requests, last, extras = money_words(call("HGET", account, "money"))
          write_money(account, balance, int(held - (state == "held" and price or 0)), int(used + price), requests, last, extras)
          local _ = ({`,
      },
      {
        file: "lua/generations/bind.lua",
        from: "task_id, request_id, key_id, more)",
        to: "task_id, request_id, key_id, more })",
      },
      {
        file: "src/settlement/holds.ts",
        from: "settlements.charged(charging, outcome);",
        to: `settlements.charged(charging, outcome);
        const { requestId, key, price } = generation;
        const { names, accountId } = key;
        const { taskId } = task;
        const { moneyOf, moneyText } = await import("../records/packed-fields.ts");
        const money = moneyOf(await connection.of(key.partition).command((redis) => redis.hget(names.account, "money")));
        const left = Number(money.balance) - price;
        const entry = ["account_id", accountId, "type", "consume", "amount", -price, "balance_after", left];
        entry.push("request_id", requestId, "task_id", taskId, "at", Date.now(), "key_id", key.keyId);
        entry.push("previous", money.last_entry ?? "");
        const id = await connection.of(key.partition).command((redis) => redis.xadd(names.ledger, "*", ...entry));
        const after = moneyText({ ...money, balance: String(left), last_entry: id ?? "" });
        await connection.of(key.partition).command((redis) => redis.hset(names.account, "money", after));`,
      },
    ],
    run: (options) => crash.run(options, { kills: 2, width: 1, gateways: 2, only: "BIND" }),
    caughtBy: "charged exactly once, nothing lost",
  },
];

export const CONTROLS: readonly Control[] = [
  ...GENERAL,
  ...RARE_INTERLEAVINGS,
  ...ARCHIVE_CONTROLS,
  ...UNMETERED_CONTROLS,
  ...UPSTREAM_CONTROLS,
  ...WEBHOOK_CONTROLS,
];
/** Of the general kind, which take a few seconds: so many at a time are in `npm test`, others each time. */
export const SHORT_CONTROLS = 2;

/** Runs each seeded bug's scenario on a copy of the sources that has it; met when the checker reports it. */
export async function runControls(options: RunOptions, short: boolean): Promise<Verdict> {
  const controls = short
    ? createRandom(options.seed)
        .shuffle([...GENERAL])
        .slice(0, SHORT_CONTROLS)
    : CONTROLS.filter(({ name }) => name.includes(options.control ?? ""));
  const criteria: Criterion[] = [];
  await inParallel(controls.length, WIDTH, async (at) => {
    criteria[at] = await seed(controls[at]!, at, options);
  });
  return { met: criteria.every(({ met }) => met), criteria, uncharged: [] };
}

async function seed(control: Control, at: number, options: RunOptions): Promise<Criterion> {
  const { name, patches, run, caughtBy, violation = /./ } = control;
  const folder = join(options.folder, String(at));
  const root = copySources(options.root, join(folder, "tree"), patches);
  await bundleSources(root);
  const progress = (): void => undefined;
  const ran = await run({ ...options, folder, root, progress, quiescenceMaxMs: QUIESCENCE_MAX_MS });
  const verdict = "criteria" in ran ? ran : check(ran);
  if (!("criteria" in ran)) writeHistory(folder, ran);
  const caught = verdict.criteria.find(
    (criterion) =>
      criterion.name === caughtBy &&
      criterion.violations.some((text) => violation.test(text)) &&
      !criterion.met,
  );
  const [first = ""] = caught?.violations ?? [];
  const figure = caught ? `caught, ${caught.violations.length} violations, such as: ${first}` : "not caught";
  options.progress(`${name}: ${figure}`);
  const violations = caught ? [] : [`"${caughtBy}" is met in spite of it:\n${formatVerdict(verdict)}`];
  return { name, met: caught !== undefined, figure, violations };
}
