import type { KeyRef } from "../../src/records/names.ts";
import type { Reply } from "../../src/scripts/script-definition.ts";
import { HOLD_MS, POLL_MS, randomId, type ScriptCall } from "../support/store.ts";
import type { Command, RequestCommand } from "./commands.ts";
import type { Run, Sent } from "./drive.ts";
import * as model from "./model.ts";
import type { ModelKey, ModelRequest } from "./model-state.ts";

/** One call of a script that serves requests, and what the model answers to it when it is told. */
export interface ExpectedCall {
  call: ScriptCall;
  /** Where it takes more than the call: makes all of it, and answers what the script would. */
  make?(): Promise<Reply>;
  expected(): Reply;
}

/** The request that a command is about, counted from the latest; undefined before the first request. */
export function targetOf({ world, sent }: Run, command: Command, index?: number): Sent | undefined {
  if (!("request" in command) || command.request === undefined) return undefined;
  const withTask = "tasks" in command && command.tasks;
  const isSent = "sent" in command && command.sent;
  // Only a poll, its settlement, and the BIND of a journal come so late that their request may be collected.
  const isLate =
    index === undefined && ["inspect", "observe", "bind", "refund", "reclaim"].includes(command.kind);
  const able = sent.filter(
    ({ request }) =>
      (isLate || world.requests.includes(request)) &&
      (!withTask || request.taskId !== undefined) &&
      (!isSent || (request.admission !== undefined && !isCertainlyVoid(request))),
  );
  return able.at(-1 - ((index ?? command.request) % able.length));
}

/** The upstream made no task for it, as its gateway knows. */
const isCertainlyVoid = ({ refused, unsent }: ModelRequest): boolean => refused === true || unsent === true;

/** On a Redis Cluster no script reaches two partitions. */
export const isClustered = ({ stage }: Run): boolean => stage.connection.known.facts?.cluster ?? false;

/** In place of one that is never made by itself. */
const NO_CALL = {} as ScriptCall;

export const ownTask = ({ generation }: ModelRequest): string => `task_${generation.requestId}`;

/** The call that a command makes; undefined when there is nothing yet that it could be about. */
export async function ask(run: Run, command: RequestCommand): Promise<ExpectedCall | undefined> {
  const { stage, world, refs } = run;
  const target = targetOf(run, command);
  switch (command.kind) {
    case "submit":
      return admission(run, await plan(run, command));
    case "inspect": {
      const [key, ref] = [world.keys[command.key]!, refs[command.key]!];
      if (command.request === undefined || !target) {
        const call = await stage.onItsWay(() => stage.store.inspect(ref, stage.tiers));
        return { call, expected: () => model.inspect(world, key) };
      }
      const taskId = target.request.taskId ?? ownTask(target.request);
      const { cacheMs } = command;
      return {
        call: await stage.onItsWay(() => stage.store.inspectTask(ref, taskId, cacheMs, stage.tiers)),
        expected: () => model.inspect(world, key, taskId, cacheMs),
      };
    }
  }
  if (!target) return undefined;
  const { request } = target;
  switch (command.kind) {
    case "admit":
      return admission(run, target);
    case "bind": {
      // Its gateway had the upstream's refusal, or never sent it, and the record that shows it is gone.
      if (isCertainlyVoid(request) && !world.requests.includes(request)) return undefined;
      const neighbour = targetOf(run, command, command.request + 1) ?? target;
      const taskId = ownTask(command.task === "own" ? request : neighbour.request);
      const data = `{"task_id":"${taskId}"}`;
      const { generation, admission, admittedAtMs } = request;
      // The price in a BIND counts only where there was no admission to fix it.
      const price = admission ? generation.price + 1 : generation.price;
      const bind = () => stage.bind({ ...generation, price, admittedAtMs }, taskId, data);
      return {
        // On a Redis Cluster the gateway claims the task id beside the script.
        ...(isClustered(run)
          ? { call: NO_CALL, make: async () => [await bind(), stage.clock.nowMs] as Reply }
          : { call: await stage.onItsWay(bind) }),
        expected: () => model.bind(world, request, taskId, data, POLL_MS),
      };
    }
    case "unclear": {
      const { outcome } = command;
      return {
        call: await stage.onItsWay(() =>
          stage.store.noteUnknown(request.generation, outcome, model.UNKNOWN_MAX),
        ),
        expected: () => model.noteUnknown(world, request, outcome),
      };
    }
    case "void": {
      const { reason } = command;
      return {
        call: stage.voiding(request.generation, reason),
        expected: () => model.voidHold(world, request, reason),
      };
    }
    case "observe":
      return observation(run, command, request);
  }
}

const admission = ({ world }: Run, { admit, request, notAfterMs }: Sent): ExpectedCall => ({
  call: admit,
  expected: () => model.admit(world, request, notAfterMs),
});

/** A generation that somebody wants, with its ADMIT as it would be sent. */
export async function plan(
  { stage, world, refs, sent }: Run,
  submission: Extract<Command, { kind: "submit" | "plan" }>,
): Promise<Sent> {
  const key: ModelKey = world.keys[submission.key]!;
  const ref: KeyRef = refs[submission.key]!;
  const { price, idempotency: wanted } = submission;
  const idempotency = wanted && {
    digest: `${ref.accountId}-${wanted.key}`,
    fingerprint: `body ${wanted.body}`,
  };
  const generation = stage.request(ref, {
    requestId: randomId("req"),
    price,
    holdMs: HOLD_MS,
    retentionMs: submission.retentionMs ?? 0,
    ...(idempotency && { idempotency }),
  });
  const request: ModelRequest = { generation, key, state: "unborn", admittedAtMs: world.nowMs };
  const admit = await stage.onItsWay(() => stage.admit(generation));
  const one = { request, admit, notAfterMs: world.nowMs + stage.connection.commandTimeoutMs };
  world.requests.push(request);
  sent.push(one);
  return one;
}

async function observation(
  run: Run,
  command: Extract<Command, { kind: "observe" }>,
  request: ModelRequest,
): Promise<ExpectedCall> {
  const { stage, world, refs } = run;
  const { status, refundFailed } = command;
  const siblings = [...world.keys.entries()].filter(([, { account }]) => account === request.key.account);
  // Only keys of its account may poll a task.
  const poller = command.poller === undefined ? undefined : siblings[command.poller % siblings.length]![0];
  const data = `{"status":"${status}","at":${world.nowMs}}`;
  const taskId = request.taskId ?? `none_${request.generation.requestId}`;
  const more = { data, refundFailed, taskId, ...(poller === undefined ? {} : { poller: refs[poller]! }) };
  const options = { refundFailed, pollMs: POLL_MS };
  const by = poller === undefined ? {} : { poller: world.keys[poller]! };
  return {
    call: await stage.onItsWay(() => stage.observe(request.generation, status, more)),
    expected: () => model.observe(world, request, { status, data }, { ...options, ...by }),
  };
}
