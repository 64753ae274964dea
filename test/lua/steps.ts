import { isDeepStrictEqual } from "node:util";
import type { Limits } from "../../src/core/limits.ts";
import type { KeyRef } from "../../src/store/names.ts";
import type { Reply } from "../../src/store/scripts.ts";
import { HOLD_MS, POLL_MS, randomId } from "../support/store.ts";
import type { Command } from "./commands.ts";
import type { Run, Sent } from "./drive.ts";
import * as model from "./model.ts";
import type { ModelKey, ModelRequest } from "./model-state.ts";
import { ledgerOf, linesOf } from "./state.ts";

/** The claims' lease and the batch of sweeps, as src/store/sweeps.ts has them. */
const LEASE_MS = 90_000;
const COLLECTED_MAX = 3;

/** What a command is about, counted from the latest; nothing before the first request. */
function targetOf({ world, sent }: Run, command: Command, index?: number): Sent | undefined {
  if (!("request" in command) || command.request === undefined) return undefined;
  const withTask = "tasks" in command && command.tasks;
  const able = sent.filter(({ request }) => {
    // Only a poll comes so late that its request may be collected.
    const late = command.kind === "inspect" || world.requests.includes(request);
    return late && (!withTask || request.taskId !== undefined);
  });
  return able.at(-1 - ((index ?? command.request) % able.length));
}

const ownTask = ({ generation }: ModelRequest): string => `task_${generation.requestId}`;

/** Does one step to the store and to the model. @throws Error where they disagree */
export async function step(run: Run, command: Command, where: string): Promise<void> {
  const { stage, world, refs } = run;
  const expectReply = (actual: Reply | undefined, expected: Reply): void => same(actual, expected, where);
  const key = "key" in command ? world.keys[command.key]! : world.keys[0]!;
  const ref = "key" in command ? refs[command.key]! : refs[0]!;
  const target = targetOf(run, command);
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
      const neighbour = targetOf(run, command, command.request + 1) ?? target;
      const taskId = ownTask(command.task === "own" ? target.request : neighbour.request);
      const data = `{"task_id":"${taskId}"}`;
      const { generation, admission } = target.request;
      // What a BIND says of the price counts only where there was no admission to fix it.
      const price = admission ? generation.price + 1 : generation.price;
      await stage.bind({ ...generation, price }, taskId, data);
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
        await stage.store.inspect(ref, stage.tiers);
        return expectReply(stage.replies()[0], model.inspect(world, key));
      }
      const taskId = target.request.taskId ?? ownTask(target.request);
      await stage.store.inspectTask(ref, taskId, command.cacheMs, stage.tiers);
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
      const collected = await stage.sweeps.collect(partition, command.retentionMs, COLLECTED_MAX);
      return same(collected, model.collect(world, partition, command.retentionMs, COLLECTED_MAX), where);
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
