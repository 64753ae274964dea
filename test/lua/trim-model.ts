import fc from "fast-check";
import { expect } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { type Checkpoint, checkpointOf } from "../../src/records/checkpoints.ts";
import {
  GRANT_KINDS,
  type GrantKind,
  grantText,
  isGrant,
  kindOf,
  LEDGER_START,
  type LedgerEntry,
  readLedger,
  transactionOf,
} from "../../src/records/ledger-entries.ts";
import { accountNames, type KeyRef, partitionNames } from "../../src/records/names.ts";
import { itemOf, scriptsOf } from "../../src/redis/script-runner.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { adjust, refund, reverse } from "../../src/scripts/credit-changes.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { type TrimCall, trim } from "../../src/scripts/ledger.ts";
import type { Script } from "../../src/scripts/script-definition.ts";
import { emptyStore } from "../support/own-store.ts";
import { createStage, RETENTION_MS, type TestConnection } from "../support/store.ts";

const SECOND_MS = 1000;
const DAY_MS = 86_400_000;

/** A step in a store of one partition. Numbers that name one of several count modulo how many there are. */
export type Step =
  | { kind: "grant"; account: number; credits: number; as?: GrantKind }
  | { kind: "reverse"; grant: number; credits: number }
  | { kind: "repeat"; grant: number; credits: number; isLookedUp: boolean }
  | { kind: "adjust"; account: number; credits: number }
  | { kind: "refund"; request: number }
  | { kind: "charge"; account: number; price: number }
  | { kind: "end"; request: number; status: "completed" | "failed" }
  | { kind: "collect" }
  | { kind: "wait"; ms: number }
  | { kind: "trim"; archived: number; keepMs: number; most: number; keepReferencesMs: number };

const account = fc.nat(2);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant("charge"), account, price: fc.integer({ min: 1, max: 30 }) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("end"),
      request: fc.nat(9),
      status: fc.constantFrom("completed", "failed"),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("grant"),
      account,
      credits: fc.integer({ min: 1, max: 50 }),
      as: fc.constantFrom(...GRANT_KINDS),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("reverse"),
      grant: fc.nat(20),
      credits: fc.constantFrom(0, 1, 30),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("adjust"),
      account,
      credits: fc.constantFrom(-40, -7, 1, 12),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("refund"), request: fc.nat(9) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("repeat"),
      grant: fc.nat(20),
      credits: fc.nat(1),
      isLookedUp: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("collect") }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("wait"),
      ms: fc.constantFrom(1, SECOND_MS, RETENTION_MS, 400 * DAY_MS),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("trim"),
      archived: fc.integer({ min: 1, max: 30 }),
      keepMs: fc.constantFrom(0, 1, SECOND_MS, RETENTION_MS),
      most: fc.integer({ min: 1, max: 25 }),
      keepReferencesMs: fc.constantFrom(0, SECOND_MS, 400 * DAY_MS),
    }),
  },
) as fc.Arbitrary<Step>;

export const steps = fc.array(step, { minLength: 40, maxLength: 70, size: "max" });

/** One account with many entries, which leave a few at a time. */
export const manySlices: readonly Step[] = [
  { kind: "grant", account: 0, credits: 500 },
  ...Array.from({ length: 16 }, (_, at): Step[] => [
    { kind: "charge", account: 0, price: 10 + at },
    { kind: "end", request: 0, status: at % 2 === 0 ? "failed" : "completed" },
    at % 3 === 0 ? { kind: "refund", request: 0 } : { kind: "adjust", account: 0, credits: at - 5 || 1 },
    { kind: "wait", ms: 1 },
    { kind: "trim", archived: 30, keepMs: 0, most: 3, keepReferencesMs: 0 },
  ]).flat(),
];

interface Grant {
  kind: "grant" | "adjustment" | "refund" | "reversal";
  as?: GrantKind | undefined;
  /** Of a grant: credits that were taken back. */
  reversed?: number;
  key: KeyRef;
  credits: number;
  reference: string;
  /** Its ledger entry. */
  atMs: number;
}

/** All that was done so far, and what Redis should have of it. */
interface World {
  keys: KeyRef[];
  /** Every ledger entry of the partition, oldest first, whether it has left or not. */
  entries: LedgerEntry[];
  /** How many of these have left. */
  left: number;
  grants: Grant[];
  forgotten: Set<Grant>;
  open: Generation[];
  /** Charged, and the task is completed; `refundedBy` is the reference of its refund. */
  completed: { request: Generation; refundedBy?: string }[];
}

/** Plays steps on an empty Redis, and compares after each what the store has with what it should have. @throws at a difference */
export async function playTrims(connection: TestConnection, all: readonly Step[]): Promise<void> {
  const { redis } = connection;
  await emptyStore(redis);
  const stage = createStage(connection, { partition: 0 });
  const keys: KeyRef[] = [];
  for (let at = 0; at < 3; at++) keys.push(await stage.givenKey({ accountId: `acc${at}`, credits: 0 }));
  const world: World = {
    keys,
    entries: [],
    left: 0,
    grants: [],
    forgotten: new Set(),
    open: [],
    completed: [],
  };
  for (const one of all) {
    await take(stage, world, one);
    await readNew(connection, world);
    await compare(connection, stage, world);
  }
}

type Stage = ReturnType<typeof createStage>;

async function take(stage: Stage, world: World, one: Step): Promise<void> {
  switch (one.kind) {
    case "grant": {
      const key = world.keys[one.account]!;
      const reference = `order ${world.grants.length}`;
      const { credits, as } = one;
      const grant: Grant = { kind: "grant", key, credits, reference, as, atMs: stage.clock.nowMs };
      const [outcome] = await recharge(stage, grant, forgottenOf(world, key));
      expect(outcome).toBe("recharged");
      world.grants.push(grant);
      return;
    }
    case "adjust":
      return adjustOnce(stage, world, one);
    case "reverse":
      return reverseOnce(stage, world, one);
    case "refund":
      return refundTwice(stage, world, one);
    case "repeat":
      return repeat(stage, world, one);
    case "charge": {
      const request = stage.request(world.keys[one.account]!, { price: one.price });
      if ((await stage.admit(request)).outcome !== "admitted") return;
      await stage.bind(request);
      world.open.push(request);
      return;
    }
    case "end": {
      const [request] = world.open.splice(one.request % Math.max(1, world.open.length), 1);
      if (!request) return;
      await stage.observe(request, one.status);
      if (one.status === "completed") world.completed.push({ request });
      return;
    }
    case "collect":
      await stage.sweeps.collect(0, 0, 100);
      return;
    case "wait":
      stage.clock.nowMs += one.ms;
      return;
    case "trim":
      return trimOnce(stage, world, one);
  }
}

const forgottenOf = ({ forgotten }: World, key: KeyRef): number =>
  [...forgotten].filter((grant) => grant.key === key).length;

/** Runs a script at the stage's clock. */
async function run<Call, Result>(stage: Stage, script: Script<Call, Result>, call: Call): Promise<Result> {
  const [reply] = await scriptsOf(stage.redis).send(script, [
    itemOf(script, call, String(stage.clock.nowMs)),
  ]);
  if (!reply || reply instanceof Error) throw reply;
  return script.read(reply, call);
}

const ACTOR = { by: "cli ann", requestId: "" };

async function adjustOnce(stage: Stage, world: World, one: Step & { kind: "adjust" }): Promise<void> {
  const { credits } = one;
  const key = world.keys[one.account]!;
  const reference = `order ${world.grants.length}`;
  const balance = (await stage.account(key)).balance;
  const call = { partition: 0, accountId: key.accountId, amount: credits, reference, actor: ACTOR };
  const lookedUp = forgottenOf(world, key);
  const reason = 'refund = "sorry", 2 words';
  const reply = await run(stage, adjust, { ...call, reason, lookedUp });
  if (balance + credits < 0) return void expect(reply).toEqual({ outcome: "too_low", balance });
  expect(reply).toEqual({ outcome: "adjusted", balance: balance + credits });
  world.grants.push({ kind: "adjustment", key, credits, reference, atMs: stage.clock.nowMs });
}

/** Takes back what is left of a grant, at most so many credits (0: all), also if Redis has forgotten the grant. */
async function reverseOnce(stage: Stage, world: World, one: Step & { kind: "reverse" }): Promise<void> {
  const grants = world.grants.filter(({ kind }) => kind === "grant");
  const grant = grants[one.grant % Math.max(1, grants.length)];
  if (!grant) return;
  const { key, credits, reversed = 0, as = "purchase" } = grant;
  const { balance } = await stage.account(key);
  const left = credits - reversed;
  const taken = Math.min(one.credits === 0 ? left : one.credits, left, balance);
  const reference = `order ${world.grants.length}`;
  const call = { partition: 0, accountId: key.accountId, of: grant.reference, reference, actor: ACTOR };
  const granted = world.forgotten.has(grant) ? grantText(as, credits) : undefined;
  const amount = one.credits || undefined;
  const send = () =>
    run(stage, reverse, {
      ...call,
      amount,
      granted,
      reason: "= money back",
      lookedUp: forgottenOf(world, key),
    });
  if (taken <= 0) return void expect(await send()).toEqual({ outcome: "nothing_left", balance, left });
  expect(await send()).toEqual({ outcome: "reversed", balance: balance - taken });
  expect(await send()).toEqual({ outcome: "duplicate", balance: balance - taken });
  grant.reversed = reversed + taken;
  world.grants.push({ kind: "reversal", key, credits: taken, reference, atMs: stage.clock.nowMs });
}

/** Refunds a completed task, and then under another reference: whatever was collected or has left, it is refunded once. */
async function refundTwice(stage: Stage, world: World, one: Step & { kind: "refund" }): Promise<void> {
  const done = world.completed[one.request % Math.max(1, world.completed.length)];
  if (!done) return;
  const { requestId, key, price } = done.request;
  const charge = world.entries.find((entry) => entry.requestId === requestId)!;
  const { balance } = await stage.account(key);
  const call = { partition: 0, accountId: key.accountId, requestId, reason: "late", charge, actor: ACTOR };
  const refundBy = (reference: string): Promise<unknown> =>
    run(stage, refund, { ...call, reference, lookedUp: forgottenOf(world, key) });
  const reference = `order ${world.grants.length}`;
  const isFirst = done.refundedBy === undefined;
  expect(await refundBy(reference)).toEqual({
    outcome: isFirst ? "refunded" : "refunded_before",
    balance: isFirst ? balance + price : balance,
  });
  if (!isFirst) return;
  done.refundedBy = reference;
  expect(await refundBy(reference)).toEqual({ outcome: "duplicate", balance: balance + price });
  world.grants.push({ kind: "refund", key, credits: price, reference, atMs: stage.clock.nowMs });
}

const recharge = (
  stage: Stage,
  { key, credits, reference, as }: Omit<Grant, "atMs" | "kind">,
  lookedUp: number,
): Promise<unknown[]> => stage.recharge(key, credits, reference, lookedUp, as);

/** Credits are never granted a second time under a reference, whatever was forgotten. */
async function repeat(stage: Stage, world: World, one: Step & { kind: "repeat" }): Promise<void> {
  const grant = world.grants[one.grant % Math.max(1, world.grants.length)];
  if (!grant) return;
  const forgotten = forgottenOf(world, grant.key);
  // An entry that is no grant has no credits that could be the same.
  const isSame = grant.kind === "grant" && one.credits === 0;
  const credits = Math.max(1, grant.credits + one.credits);
  const reply = await recharge(stage, { ...grant, credits }, one.isLookedUp ? forgotten - 1 : 0);
  if (!world.forgotten.has(grant)) expect(reply[0]).toBe(isSame ? "duplicate" : "mismatch");
  else expect([reply[0], Number(reply[2])]).toEqual(["forgotten", forgotten]);
}

/** As the list of grants has it; those of one moment are in this order. */
const memberOf = ({ key, reference }: Grant): string => `${key.accountId} ${reference}`;

async function trimOnce(stage: Stage, world: World, one: Step & { kind: "trim" }): Promise<void> {
  const { keepMs, most, keepReferencesMs } = one;
  // Of those that are still there, so many are archived.
  const archivedTo = world.entries[Math.min(world.left + one.archived, world.entries.length) - 1];
  if (!archivedTo || world.entries.length === world.left) return;
  const call: TrimCall = { partition: 0, archivedTo, keepMs, most, keepReferencesMs };
  const { nowMs } = stage.clock;
  const bound = new Set(world.open.map(({ requestId }) => requestId));
  const archived = world.entries.slice(world.left, world.entries.indexOf(archivedTo)).slice(0, most);
  const stays = archived.findIndex(
    ({ type, requestId, atMs }) => atMs > nowMs - keepMs || (type === "consume" && bound.has(requestId)),
  );
  const leave = stays < 0 ? archived.length : stays;
  const hasLeft = world.entries.slice(0, world.left).map(({ reference }) => reference);
  const old = world.grants
    .filter((grant) => hasLeft.includes(grant.reference) && !world.forgotten.has(grant))
    .filter(({ atMs }) => atMs <= nowMs - keepReferencesMs)
    .sort((a, b) => a.atMs - b.atMs || (memberOf(a) < memberOf(b) ? -1 : 1))
    .slice(0, most);
  const [reply] = await scriptsOf(stage.redis).send(trim, [itemOf(trim, call, String(nowMs))]);
  if (reply instanceof Error) throw reply;
  expect(trim.read(reply!, call)).toEqual({
    outcome: "trimmed",
    entries: leave,
    references: old.length,
    more: leave === most || old.length === most,
  });
  world.left += leave;
  for (const grant of old) world.forgotten.add(grant);
}

async function readNew({ redis }: TestConnection, world: World): Promise<void> {
  world.entries.push(...(await readLedger(redis, 0, world.entries.at(-1)?.streamId ?? LEDGER_START)));
}

async function compare(connection: TestConnection, stage: Stage, world: World): Promise<void> {
  const { redis } = connection;
  const { entries, left, keys } = world;
  expect((await readLedger(redis, 0, LEDGER_START)).map(({ streamId }) => streamId)).toEqual(
    entries.slice(left).map(({ streamId }) => streamId),
  );
  const cut = left === 0 ? undefined : entries[left - 1]!;
  expect(await redis.hgetall(partitionNames(0).trimmed)).toEqual(
    cut === undefined ? {} : { last_entry: cut.streamId, at: String(cut.atMs), entries: String(left) },
  );
  for (const key of keys) {
    const own = entries.filter(({ accountId }) => accountId === key.accountId);
    const account = await stage.account(key);
    expect(account.recent).toEqual(own.toReversed().slice(0, 10).map(transactionOf));
    expect(account.balance).toBe(own.at(-1)?.balanceAfter ?? 0);
    const text = (await redis.get(accountNames(0, key.accountId).checkpoint)) ?? "";
    expect(checkpointOf(text)).toEqual(checkpointAfter(world, key));
  }
  const { ok, violations, entries: compared, credits } = await verifyLedger(oneNode(redis));
  expect({ ok, violations, compared }).toEqual({ ok: true, violations: [], compared: entries.length });
  expect(credits).toEqual(creditsOf(entries));
}

function creditsOf(entries: readonly LedgerEntry[]) {
  const sum = (some: LedgerEntry[]): number => some.reduce((total, { amount }) => total + amount, 0);
  return {
    recharged: sum(entries.filter((entry) => isGrant(kindOf(entry)))),
    consumed: -sum(entries.filter((entry) => kindOf(entry) === "charge")) + 0,
    refunded: sum(entries.filter((entry) => kindOf(entry) === "refund")),
    adjusted: sum(entries.filter((entry) => kindOf(entry) === "adjustment")),
    reversed: -sum(entries.filter((entry) => kindOf(entry) === "reversal")) + 0,
  };
}

/** The expected checkpoint of an account. */
function checkpointAfter({ entries, left, forgotten }: World, { accountId }: KeyRef): Checkpoint | undefined {
  const own = entries.slice(0, left).filter((entry) => entry.accountId === accountId);
  const last = own.at(-1);
  if (!last) return undefined;
  const grants = own.filter(({ reference }) => reference !== "");
  const gone = [...forgotten].filter(({ key }) => key.accountId === accountId);
  return {
    entry: last.streamId,
    balance: last.balanceAfter,
    entries: own.length,
    ...creditsOf(own),
    references: grants.length,
    referenced: creditsOf(grants.filter((entry) => kindOf(entry) === "purchase")).recharged,
    forgotten: gone.length,
    forgotten_credits: gone.reduce(
      (sum, { kind, credits, as = "purchase" }) =>
        sum + (kind === "grant" && as === "purchase" ? credits : 0),
      0,
    ),
    tail: own
      .toReversed()
      .slice(0, 10)
      .map(({ streamId, atMs, type, kind, amount, balanceAfter, endpoint, reason, taskId }) => {
        const isCharge = type === "consume";
        return {
          ...{ streamId, atMs, type, kind, amount, balanceAfter },
          endpoint: isCharge ? endpoint : "",
          reason,
          taskId: isCharge ? "" : taskId,
        };
      }),
  };
}

/** Ledgers that must not be trimmed: another one than was archived, and one that does not add up. @throws at a difference */
export async function playRefusals(connection: TestConnection): Promise<void> {
  const { redis } = connection;
  await emptyStore(redis);
  const stage = createStage(connection, { partition: 0 });
  const key = await stage.givenKey({ accountId: "acc", credits: 0 });
  for (let at = 0; at < 3; at++) await stage.recharge(key, 100, `order ${at}`);
  const request = stage.request(key);
  await stage.givenTask(request);
  const entries = await readLedger(redis, 0, LEDGER_START);
  const trimmed = async (archivedTo: LedgerEntry) => {
    const call: TrimCall = { partition: 0, archivedTo, keepMs: 0, most: 100, keepReferencesMs: 0 };
    const [reply] = await scriptsOf(redis).send(trim, [itemOf(trim, call, String(stage.clock.nowMs))]);
    if (reply instanceof Error) throw reply;
    return trim.read(reply!, call);
  };
  const [grant, charge] = [entries[2]!, entries[3]!];
  const before = await stage.everything();
  for (const other of [
    { ...charge, streamId: "1-1" },
    { ...charge, accountId: "other" },
    { ...charge, balanceAfter: charge.balanceAfter + 1 },
    { ...charge, requestId: "other" },
    { ...charge, reference: "other" },
    { ...grant, reference: "other" },
    { ...grant, requestId: "other" },
  ])
    expect(await trimmed(other)).toEqual({ outcome: "unknown" });
  expect(await stage.everything()).toEqual(before);
  // The first of these entries has a wrong balance, the second names a wrong entry before it.
  const { ledger } = partitionNames(0);
  await redis.xadd(ledger, "*", ...wrongEntry(key, { balance_after: 395, previous: charge.streamId }));
  await redis.xadd(ledger, "*", ...wrongEntry(key, { balance_after: 295, previous: grant.streamId }));
  const last = (await readLedger(redis, 0, charge.streamId)).at(-1)!;
  await stage.observe(request, "completed");
  expect(await trimmed(last)).toMatchObject({ outcome: "trimmed", entries: 4 });
  const [wrong] = await readLedger(redis, 0, LEDGER_START);
  expect(await trimmed(last)).toEqual({ outcome: "broken", entry: wrong!.streamId });
  await redis.xdel(ledger, wrong!.streamId);
  await redis.xadd(ledger, "*", ...wrongEntry(key, { balance_after: 300, previous: last.streamId }));
  const end = (await readLedger(redis, 0, last.streamId)).at(-1)!;
  expect(await trimmed(end)).toEqual({ outcome: "broken", entry: last.streamId });
}

const wrongEntry = ({ accountId }: KeyRef, more: Record<string, string | number>): string[] =>
  Object.entries({
    ...{ account_id: accountId, type: "recharge", amount: 5, endpoint: "", reason: "", task_id: "", at: 1 },
    ...more,
  })
    .flat()
    .map(String);
