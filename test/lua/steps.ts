import { isDeepStrictEqual } from "node:util";
import type { Limits } from "../../src/domain/limits.ts";
import type { StreamEntry } from "../../src/records/ledger-entries.ts";
import { type KeyRef, partitionOfName, requestName } from "../../src/records/names.ts";
import type { ChargeEntry } from "../../src/scripts/credit-changes.ts";
import type { Reply } from "../../src/scripts/script-definition.ts";
import { changeAccount } from "../support/account-money.ts";
import { setAccountLimits } from "../support/store.ts";
import { setKeyFields } from "../support/stored-records.ts";
import type { Command } from "./commands.ts";
import { Disagreement } from "./disagreement.ts";
import type { Run } from "./drive.ts";
import * as model from "./model.ts";
import type { ModelKey, ModelRequest } from "./model-state.ts";
import { ask, type ExpectedCall, isClustered, ownTask, plan, targetOf } from "./script-calls.ts";
import { entryOf, ledgerOf } from "./state.ts";

/** The lease and the batch of sweeps, as src/settlement/sweeps.ts has them. */
const LEASE_MS = 90_000;
const COLLECTED_MAX = 3;
/** As many transactions as GET /credits shows, and what CREDITS answers before them. */
const RECENT = 10;
const CREDITS_WORDS = 13;

/** Does one step to the store and to the model. @throws Disagreement */
export async function step(run: Run, command: Command, where: string): Promise<void> {
  const { stage, world, refs } = run;
  stage.replies();
  switch (command.kind) {
    case "plan":
      await plan(run, command);
      return;
    case "together":
      return together(run, command, where);
    case "recharge": {
      const { amount, key } = command;
      const reference = `grant ${command.reference}`;
      return same(
        await stage.recharge(refs[key]!, amount, reference, 0, command.as),
        model.recharge(world, world.keys[key]!, amount, reference, command.as),
        where,
      );
    }
    case "adjust":
    case "refund":
    case "reverse":
      return byHand(run, command, where);
    case "reclaim":
      return chargeAgain(run, command, where);
    case "credits":
      return credits(run, world.keys[command.key]!, refs[command.key]!, where);
    case "lease":
    case "collect":
    case "time":
    case "limits":
    case "end key":
    case "status":
    case "cap":
    case "account limits":
      return aside(run, command, where);
    default: {
      const one = await ask(run, command);
      if (one) await arrive(run, one, where);
    }
  }
}

/** An operator's change of a balance. References are those of the grants, so that one may stand for another thing. */
async function byHand(
  run: Run,
  command: Extract<Command, { kind: "adjust" | "refund" | "reverse" }>,
  where: string,
): Promise<void> {
  const { stage, world } = run;
  const reference = `grant ${command.reference}`;
  const { actor, reason } = model.BY_HAND;
  if (command.kind === "adjust") {
    const { amount } = command;
    const { accountId, partition } = run.refs[command.key]!;
    const reply = await stage.adjust({ partition, accountId, amount, reference, reason, actor });
    return same(reply, model.adjust(world, world.keys[command.key]!, amount, reference), where);
  }
  if (command.kind === "reverse") {
    const { accountId, partition } = run.refs[command.key]!;
    const terms = { of: `grant ${command.of}`, amount: command.amount, reference };
    const reply = await stage.reverse({ partition, accountId, ...terms, reason, actor });
    return same(reply, model.reverse(world, world.keys[command.key]!, terms), where);
  }
  const target = targetOf(run, command);
  if (!target) return;
  const { generation, key } = target.request;
  const { requestId } = generation;
  const call = { partition: key.partition, accountId: key.account.id, requestId, reference, reason, actor };
  const isLost = command.lost && target.request.state === "unborn" && world.requests.includes(target.request);
  const charge = isLost ? chargeOf(target.request) : undefined;
  const reply = await stage.refund({ ...call, charge });
  same(reply, model.refund(world, target.request, reference, charge?.taskId), where);
}

async function chargeAgain(
  run: Run,
  command: Extract<Command, { kind: "reclaim" }>,
  where: string,
): Promise<void> {
  const target = targetOf(run, command)?.request;
  if (!target) return;
  const { key, generation } = target;
  const { requestId } = generation;
  const task = { taskId: target.taskId ?? "", requestId, creatorKeyId: key.keyId };
  const data = `{"status":"completed","at":${run.world.nowMs}}`;
  const call = { partition: key.partition, accountId: key.account.id, task, data };
  same(await run.stage.reclaim(call), model.reclaim(run.world, target, data), where);
}

/** A charge as the archive has it. Its time does not tell the month of the request, so no month gets room again. */
function chargeOf(request: ModelRequest): ChargeEntry {
  const { generation, key } = request;
  const { price, endpoint, requestId } = generation;
  const { keyId, account } = key;
  const money = { type: "consume", amount: -price, balanceAfter: 0 } as const;
  const place = { partition: key.partition, streamId: "0-1", previous: "" };
  const ids = { ...place, accountId: account.id, keyId, requestId, taskId: ownTask(request) };
  return {
    ...money,
    ...ids,
    atMs: 0,
    endpoint,
    reason: "",
    reference: "",
    by: "",
    note: "",
    kind: "",
    details: "",
  };
}

async function arrive({ stage }: Run, { call, make, expected }: ExpectedCall, where: string): Promise<void> {
  same(numbered(await (make?.() ?? stage.arrive(call))), expected(), where);
}

/** Several items in one call do what they would do one after the other; one that fails does nothing. */
async function together(
  run: Run,
  { commands, spoilt }: Extract<Command, { kind: "together" }>,
  where: string,
): Promise<void> {
  const { stage } = run;
  const asks: ExpectedCall[] = [];
  const expected: unknown[] = [];
  for (const command of commands) {
    const one = await ask(run, command);
    if (!one) continue;
    // There a call has items of one partition alone.
    if (isClustered(run)) {
      await arrive(run, one, where);
      continue;
    }
    asks.push(one);
    expected.push(one.expected());
  }
  const calls = asks.map(({ call }) => call);
  const [first] = calls;
  if (!first) return;
  if (spoilt !== undefined) {
    const at = spoilt % (calls.length + 1);
    const { script, item } = first;
    const spoiltOf = (name: string) => name.replace("}:", "}:spoilt-");
    // ADMIT and BIND make the request's name themselves, like the key's.
    const request = requestName(partitionOfName(item.keys[0]!)!, String(item.args[0]));
    for (const name of [...item.keys, request])
      await stage.redis.multi().del(spoiltOf(name)).rpush(spoiltOf(name), "no hash and no text").exec();
    calls.splice(at, 0, { script, item: { ...item, keys: item.keys.map(spoiltOf) } });
    expected.splice(at, 0, "WRONGTYPE");
  }
  const replies = await stage.arriveTogether(calls);
  same(
    replies.map((reply) => (reply instanceof Error ? reply.message.split(" ")[0] : numbered(reply))),
    expected,
    where,
  );
}

async function credits(
  { stage, world, ...run }: Run,
  key: ModelKey,
  ref: KeyRef,
  where: string,
): Promise<void> {
  await stage.credits(ref);
  const [reply = []] = stage.replies();
  const known = reply[0] === "known";
  const entries = (known ? reply.slice(CREDITS_WORDS) : []) as StreamEntry[];
  same(numbered(known ? reply.slice(0, CREDITS_WORDS) : reply), model.credits(world, key), where);
  const latest = (await ledgerOf({ stage, world, ...run }, ref)).slice(-RECENT).reverse();
  same(
    entries.map((entry) => entryOf(entry, ref.accountId)),
    known ? latest : [],
    where,
  );
}

type Operation = Extract<Command, { kind: "limits" | "end key" | "status" | "cap" | "account limits" }>;

/** Events beside the requests: sweeps, time, operators. */
async function aside(
  run: Run,
  command: Extract<Command, { kind: "lease" | "collect" | "time" }> | Operation,
  where: string,
): Promise<void> {
  const { stage, world } = run;
  if (command.kind === "time") {
    stage.clock.nowMs += command.byMs;
    world.nowMs += command.byMs;
    return;
  }
  const { partition } = run.refs[command.key]!;
  switch (command.kind) {
    case "lease":
      await stage.sweeps.lease(command.list, partition, command.most);
      return same(
        stage.replies()[0],
        model.lease(world, command.list, partition, command.most, LEASE_MS),
        where,
      );
    case "collect": {
      const collected = await stage.sweeps.collect(partition, command.retentionMs, COLLECTED_MAX);
      return same(collected, model.collect(world, partition, COLLECTED_MAX), where);
    }
    default:
      return operate(run, command);
  }
}

/** An operator's commands. */
async function operate(run: Run, command: Operation): Promise<void> {
  const { stage, world } = run;
  const key = world.keys[command.key]!;
  const { names } = run.refs[command.key]!;
  switch (command.kind) {
    case "limits": {
      const { rate_limit, max_concurrent, daily_limit } = command;
      key.own = { rate_limit, max_concurrent, daily_limit };
      run.widest.set(key.keyId, widest(run.widest.get(key.keyId)!, key.own as Limits));
      await setKeyFields(stage.redis, names.key, { rate_limit, max_concurrent, daily_limit });
      return;
    }
    case "status": {
      const { status } = command;
      const { account } = names;
      if (status === "active") {
        delete key.account.status;
        await changeAccount(stage.redis, account, { status: null });
      } else {
        key.account.status = status;
        await changeAccount(stage.redis, account, { status });
      }
      return;
    }
    case "cap": {
      const { monthly_credits } = command;
      if (monthly_credits === undefined) {
        delete key.monthly_credits;
        await setKeyFields(stage.redis, names.key, { monthly_credits: null });
      } else {
        key.monthly_credits = monthly_credits;
        await setKeyFields(stage.redis, names.key, { monthly_credits });
      }
      return;
    }
    case "account limits": {
      const { account } = key;
      const { rate_limit, max_concurrent, daily_limit } = command;
      const limits = { rate_limit, max_concurrent, daily_limit };
      const keyIds = world.keys.filter((one) => one.account === account).map(({ keyId }) => keyId);
      await setAccountLimits(stage, run.refs[command.key]!, limits, keyIds);
      if (rate_limit === undefined && max_concurrent === undefined && daily_limit === undefined) {
        delete account.limits;
      } else {
        if (!account.limits) account.limitsTurn++;
        account.limits = definedOnly(limits);
      }
      return;
    }
    case "end key": {
      const endsAtMs = world.nowMs + 30_000;
      if (command.how === "revoked") {
        key.revoked = true;
        await setKeyFields(stage.redis, names.key, { revoked_at: world.nowMs });
      } else {
        key.expiresAtMs = endsAtMs;
        await setKeyFields(stage.redis, names.key, { expires_at: endsAtMs });
      }
      return;
    }
  }
}

const definedOnly = (limits: { [Name in keyof Limits]: number | undefined }): Partial<Limits> =>
  Object.fromEntries(Object.entries(limits).filter(([, limit]) => limit !== undefined));

const widest = (a: Limits, b: Limits): Limits => ({
  rate_limit: Math.max(a.rate_limit, b.rate_limit),
  max_concurrent: Math.max(a.max_concurrent, b.max_concurrent),
  daily_limit: Math.max(a.daily_limit, b.daily_limit),
});

const STATE_NUMBERS = 7;

/** A reply with the clock and the numbers of the headers as numbers: scripts write these as texts where cjson would be slow. */
const numbered = (reply: Reply): Reply =>
  reply.map((value, at) =>
    at > 0 && at < STATE_NUMBERS && typeof value === "string" && /^\d+$/.test(value) ? Number(value) : value,
  );

export function same(actual: unknown, expected: unknown, where: string): void {
  if (isDeepStrictEqual(actual, expected)) return;
  throw new Disagreement(`${where}\n store: ${JSON.stringify(actual)}\n model: ${JSON.stringify(expected)}`);
}
