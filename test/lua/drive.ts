import { isDeepStrictEqual } from "node:util";
import type { Limits, Tiers } from "../../src/core/limits.ts";
import type { Connection } from "../../src/store/connection.ts";
import type { KeyRef } from "../../src/store/names.ts";
import type { Reply, Scripts, Verb } from "../../src/store/scripts.ts";
import { createStage, HOLD_MS, POLL_MS, randomId, type ScriptCall, type Stage } from "../support/store.ts";
import type { Command, Scenario } from "./commands.ts";
import { checkInvariants } from "./invariants.ts";
import * as model from "./model.ts";
import type { ModelKey, ModelRequest, World } from "./model-state.ts";
import { expectedState, ledgerOf, linesOf, storedState } from "./state.ts";

/** Small enough that every refusal occurs. */
const TIERS: Tiers = {
  standard: { rateLimit: 5, maxConcurrent: 3, dailyLimit: 6 },
  enterprise: { rateLimit: 8, maxConcurrent: 4, dailyLimit: 8 },
};
/** The claims' lease and the batch of sweeps, as src/store/sweeps.ts has them. */
const LEASE_MS = 90_000;

/** A request as the model knows it, with its ADMIT as it would be sent. */
interface Sent {
  request: ModelRequest;
  admit: ScriptCall;
  notAfterMs: number;
}

export interface Run {
  stage: Stage;
  world: World;
  refs: KeyRef[];
  sent: Sent[];
  /** The widest limits that each key ever had. */
  widest: Map<string, Limits>;
}

/** Plays one scenario against the store and the model. @throws Error where they disagree */
export async function play(
  connection: Connection,
  scenario: Scenario,
  options: { scripts?: Scripts; seen?: (verb: Verb, reply: Reply) => void } = {},
): Promise<void> {
  const run = await givenRun(createStage(connection, { tiers: TIERS, ...options }), scenario.onePartition);
  for (const [at, command] of scenario.commands.entries()) {
    const where = `step ${at}, ${JSON.stringify(command)}`;
    await step(run, command, where);
    same(await storedState(run), expectedState(run), `${where}: stored state`);
  }
  await checkInvariants(run);
}

async function givenRun(stage: Stage, onePartition: boolean): Promise<Run> {
  const { partition, clock } = stage;
  const world: World = {
    nowMs: clock.nowMs,
    tiers: TIERS,
    keys: [],
    requests: [],
    tasks: new Map(),
    idempotency: new Map(),
  };
  const run: Run = { stage, world, refs: [], sent: [], widest: new Map() };
  const first = await addKey(run, { credits: 100, tier: "standard", own: FIRST_LIMITS, partition });
  await addKey(run, { credits: 0, tier: "misspelt", own: {}, partition, account: first.account });
  await addKey(run, {
    credits: 60,
    tier: "enterprise",
    own: {},
    partition: onePartition ? partition : partition + 1,
  });
  return run;
}

const FIRST_LIMITS = { rateLimit: 4, maxConcurrent: 3, dailyLimit: 5 };

async function addKey(
  run: Run,
  wanted: {
    credits: number;
    tier: string;
    own: Partial<Limits>;
    partition: number;
    account?: ModelKey["account"];
  },
): Promise<ModelKey> {
  const { stage, world } = run;
  const { credits, tier, own, partition, account: shared } = wanted;
  const ids = shared ? { accountId: shared.id } : {};
  const ref = await stage.givenKey({ credits, tier, partition, ownLimits: false, ...own, ...ids });
  const account = shared ?? {
    id: ref.accountId,
    balance: 0,
    totalUsed: 0,
    totalRequests: 0,
    ledger: [],
    references: new Map<string, number>(),
  };
  const key: ModelKey = {
    keyId: ref.keyId,
    account,
    partition,
    tier,
    own: { ...own },
    revoked: false,
    forgotten: [],
  };
  if (credits > 0) model.recharge(world, key, credits, `key:${ref.keyId}`);
  world.keys.push(key);
  run.refs.push(ref);
  run.widest.set(ref.keyId, { ...(TIERS[tier] ?? TIERS.standard), ...own } as Limits);
  return key;
}

/** The request counted from the latest; none before the first was asked for, or once it is collected. */
function chosen(run: Run, index: number, tasks = false): Sent | undefined {
  const alive = run.sent.filter(
    ({ request }) => run.world.requests.includes(request) && (!tasks || request.taskId !== undefined),
  );
  return alive.length === 0 ? undefined : alive[alive.length - 1 - (index % alive.length)];
}

const ownTask = ({ generation }: ModelRequest): string => `task_${generation.requestId}`;

async function step(run: Run, command: Command, where: string): Promise<void> {
  const { stage, world, refs } = run;
  const expectReply = (actual: Reply | undefined, expected: Reply): void => same(actual, expected, where);
  const key = "key" in command ? world.keys[command.key]! : world.keys[0]!;
  const ref = "key" in command ? refs[command.key]! : refs[0]!;
  const target =
    "request" in command ? chosen(run, command.request ?? 0, "tasks" in command && command.tasks) : undefined;
  stage.replies();
  switch (command.kind) {
    case "submit":
    case "plan": {
      const sent = await plan(run, command, key, ref);
      if (command.kind === "submit") await admit(sent);
      return;
    }
    case "admit":
      return target && admit(target);
    case "bind": {
      if (!target) return;
      const neighbour = chosen(run, command.request + 1) ?? target;
      const taskId = ownTask(command.task === "own" ? target.request : neighbour.request);
      const data = `{"task_id":"${taskId}"}`;
      await stage.bind(target.request.generation, taskId, data);
      return expectReply(stage.replies()[0], model.bind(world, target.request, taskId, data, POLL_MS));
    }
    case "void": {
      if (!target) return;
      await stage.void(target.request.generation, command.reason);
      return expectReply(stage.replies()[0], model.voidHold(world, target.request, command.reason));
    }
    case "observe":
      return target && observe(run, command, target.request, where);
    case "recharge": {
      const { amount } = command;
      const reference = `grant ${command.reference}`;
      return expectReply(
        await stage.recharge(ref, amount, reference),
        model.recharge(world, key, amount, reference),
      );
    }
    case "inspect": {
      if (command.request === undefined || !target) {
        await stage.store.inspect(ref, TIERS);
        return expectReply(stage.replies()[0], model.inspect(world, key));
      }
      const taskId = target.request.taskId ?? ownTask(target.request);
      await stage.store.inspectTask(ref, taskId, command.cacheMs, TIERS);
      return expectReply(stage.replies()[0], model.inspect(world, key, taskId, command.cacheMs));
    }
    case "credits": {
      await stage.credits(ref);
      const [reply = []] = stage.replies();
      const recent = reply[0] === "known" ? linesOf(await ledgerOf(run, ref)) : [];
      return expectReply(reply, [...model.credits(world, key), ...recent]);
    }
    default:
      return aside(run, command, where);
  }

  async function admit({ admit: call, request, notAfterMs }: Sent): Promise<void> {
    expectReply(await stage.arrive(call), model.admit(world, request, notAfterMs));
  }
}

/** What happens beside the requests: sweeps, time, operators. */
async function aside(
  run: Run,
  command: Extract<Command, { kind: "claim" | "collect" | "time" | "limits" | "end key" }>,
  where: string,
): Promise<void> {
  const { stage, world } = run;
  if (command.kind === "time") {
    stage.clock.nowMs += command.byMs;
    world.nowMs += command.byMs;
    return;
  }
  const key = world.keys[command.key]!;
  const { names, partition } = run.refs[command.key]!;
  switch (command.kind) {
    case "claim":
      await stage.sweeps.claim(partition, command.most);
      return same(stage.replies()[0], model.claim(world, partition, command.most, LEASE_MS), where);
    case "collect": {
      const collected = await stage.sweeps.collect(partition, command.retentionMs, 3);
      return same(collected, model.collect(world, partition, command.retentionMs, 3), where);
    }
    case "limits": {
      const { rateLimit, maxConcurrent, dailyLimit } = command;
      key.own = { rateLimit, maxConcurrent, dailyLimit };
      run.widest.set(key.keyId, widest(run.widest.get(key.keyId)!, key.own as Limits));
      const fields = { rate_limit: rateLimit, max_concurrent: maxConcurrent, daily_limit: dailyLimit };
      await stage.redis.hset(names.key, fields);
      return;
    }
    case "end key": {
      const endsAtMs = world.nowMs + 30_000;
      if (command.how === "revoked") {
        key.revoked = true;
        await stage.redis.hset(names.key, "revoked_at", world.nowMs);
      } else {
        key.expiresAtMs = endsAtMs;
        await stage.redis.hset(names.key, "expires_at", endsAtMs);
      }
      return;
    }
  }
}

const widest = (a: Limits, b: Limits): Limits => ({
  rateLimit: Math.max(a.rateLimit, b.rateLimit),
  maxConcurrent: Math.max(a.maxConcurrent, b.maxConcurrent),
  dailyLimit: Math.max(a.dailyLimit, b.dailyLimit),
});

async function plan(
  run: Run,
  asked: Extract<Command, { kind: "submit" | "plan" }>,
  key: ModelKey,
  ref: KeyRef,
): Promise<Sent> {
  const { stage, world } = run;
  const { price, idempotency: wanted } = asked;
  const idempotency = wanted && {
    digest: `${ref.accountId}-${wanted.key}`,
    fingerprint: `body ${wanted.body}`,
  };
  const generation = stage.request(ref, {
    requestId: randomId("req"),
    price,
    holdMs: HOLD_MS,
    ...(idempotency && { idempotency }),
  });
  const request: ModelRequest = { generation, key, state: "unborn" };
  const admit = await stage.onItsWay(() => stage.admit(generation));
  const sent = { request, admit, notAfterMs: world.nowMs + stage.connection.commandTimeoutMs };
  world.requests.push(request);
  run.sent.push(sent);
  return sent;
}

async function observe(
  run: Run,
  command: Extract<Command, { kind: "observe" }>,
  request: ModelRequest,
  where: string,
): Promise<void> {
  const { stage, world, refs } = run;
  const { status, refundFailed, poller } = command;
  const data = `{"status":"${status}","at":${world.nowMs}}`;
  const taskId = request.taskId ?? `none_${request.generation.requestId}`;
  await stage.observe(request.generation, status, {
    data,
    refundFailed,
    taskId,
    ...(poller === undefined ? {} : { poller: refs[poller]! }),
  });
  const options = { refundFailed, pollMs: POLL_MS };
  const by = poller === undefined ? {} : { poller: world.keys[poller]! };
  same(stage.replies()[0], model.observe(world, request, { status, data }, { ...options, ...by }), where);
}

export function same(actual: unknown, expected: unknown, where: string): void {
  if (isDeepStrictEqual(actual, expected)) return;
  throw new Error(`${where}\n store: ${JSON.stringify(actual)}\n model: ${JSON.stringify(expected)}`);
}
