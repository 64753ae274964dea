import fc from "fast-check";
import { expect } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { type Checkpoint, checkpointOf } from "../../src/store/checkpoints.ts";
import { LEDGER_START, type LedgerEntry, readLedger, transactionOf } from "../../src/store/ledger-entries.ts";
import { accountNames, type KeyRef, META, partitionNames } from "../../src/store/names.ts";
import { oneNode } from "../../src/store/nodes.ts";
import { itemOf } from "../../src/store/script-definition.ts";
import { scriptsOf } from "../../src/store/script-runner.ts";
import type { Generation } from "../../src/store/scripts/admit.ts";
import { type TrimCall, trim } from "../../src/store/scripts/trim.ts";
import { createStage, RETENTION_MS, type TestConnection } from "../support/store.ts";

const SECOND_MS = 1000;
const DAY_MS = 86_400_000;

/** What happens in a store of one partition. Numbers that name one of several count modulo how many there are. */
export type Step =
  | { kind: "grant"; account: number; credits: number }
  | { kind: "repeat"; grant: number; credits: number; isLookedUp: boolean }
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
    arbitrary: fc.record({ kind: fc.constant("grant"), account, credits: fc.integer({ min: 1, max: 50 }) }),
  },
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
    { kind: "wait", ms: 1 },
    { kind: "trim", archived: 30, keepMs: 0, most: 3, keepReferencesMs: 0 },
  ]).flat(),
];

interface Grant {
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
}

/** Plays steps on an empty Redis, and compares after each what the store has with what it should have. @throws at a difference */
export async function playTrims(connection: TestConnection, all: readonly Step[]): Promise<void> {
  const { redis } = connection;
  await redis.flushdb();
  await redis.hset(META, { partitions: 1, id: "store", layout: "3", trimmable_since: 1 });
  const stage = createStage(connection, { partition: 0 });
  const keys: KeyRef[] = [];
  for (let at = 0; at < 3; at++) keys.push(await stage.givenKey({ accountId: `acc${at}`, credits: 0 }));
  const world: World = { keys, entries: [], left: 0, grants: [], forgotten: new Set(), open: [] };
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
      const earlier = [...world.forgotten].filter((grant) => grant.key === key).length;
      const [outcome] = await recharge(stage, { key, credits: one.credits, reference }, earlier);
      expect(outcome).toBe("recharged");
      world.grants.push({ key, credits: one.credits, reference, atMs: stage.clock.nowMs });
      return;
    }
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
      if (request) await stage.observe(request, one.status);
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

const recharge = (
  stage: Stage,
  { key, credits, reference }: Omit<Grant, "atMs">,
  lookedUp: number,
): Promise<unknown[]> => stage.recharge(key, credits, reference, lookedUp);

/** Credits are never granted a second time under a reference, whatever was forgotten. */
async function repeat(stage: Stage, world: World, one: Step & { kind: "repeat" }): Promise<void> {
  const grant = world.grants[one.grant % Math.max(1, world.grants.length)];
  if (!grant) return;
  const forgotten = [...world.forgotten].filter(({ key }) => key === grant.key).length;
  const credits = grant.credits + one.credits;
  const reply = await recharge(stage, { ...grant, credits }, one.isLookedUp ? forgotten - 1 : 0);
  if (!world.forgotten.has(grant)) expect(reply[0]).toBe(one.credits === 0 ? "duplicate" : "mismatch");
  else expect([reply[0], Number(reply[2])]).toEqual(["forgotten", forgotten]);
}

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
    recharged: sum(entries.filter(({ type, reason }) => type === "recharge" && reason === "")),
    consumed: -sum(entries.filter(({ type }) => type === "consume")) + 0,
    refunded: sum(entries.filter(({ reason }) => reason === "refund")),
  };
}

/** What the checkpoint of an account should say. */
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
    referenced: grants.reduce((sum, { amount }) => sum + amount, 0),
    forgotten: gone.length,
    forgotten_credits: gone.reduce((sum, { credits }) => sum + credits, 0),
    tail: own
      .toReversed()
      .slice(0, 10)
      .map(({ streamId, atMs, type, amount, balanceAfter, endpoint, reason, taskId }) => {
        const isCharge = type === "consume";
        return {
          ...{ streamId, atMs, type, amount, balanceAfter },
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
  await redis.flushdb();
  await redis.hset(META, { partitions: 1, id: "store", layout: "3", trimmable_since: 1 });
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
