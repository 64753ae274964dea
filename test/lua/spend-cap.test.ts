import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from "vitest";
import { monthOf } from "../../src/domain/moments.ts";
import { chargeEntry } from "../../src/operations/credits/refunds.ts";
import { rotateKey } from "../../src/operations/keys/change-key.ts";
import { readKey } from "../../src/operations/keys/keys.ts";
import { entryFields } from "../../src/records/ledger-entries.ts";
import { type KeyRef, keyRef, partitionNames, partitionOf, requestName } from "../../src/records/names.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { createClient } from "../support/client.ts";
import {
  createStage,
  HOLD_MS,
  openConnection,
  randomId,
  type Stage,
  type TestConnection,
  times,
} from "../support/store.ts";
import { changeCounters, readCounters, setKeyFields } from "../support/stored-records.ts";
import { LUA_FOLDER } from "./headers.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, type Mutant, SPENDING_MUTANTS } from "./mutants.ts";

const DAY = 24 * 3_600_000;

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

/** A key that may spend so much in a month. */
async function givenKey(monthly_credits: number, credits = 1000): Promise<KeyRef> {
  const key = await stage.givenKey({ credits });
  await setKeyFields(stage.redis, key.names.key, { monthly_credits });
  return key;
}

const spent = async ({ names }: KeyRef): Promise<number> =>
  Number((await readCounters(stage.redis, names.key)).spent ?? 0);

/** Of several keys one after the other: the month and what it has spent in it, and the clock. */
async function stored(own: Stage, { names }: KeyRef): Promise<(string | null | undefined)[]> {
  const { spent, clock_ms } = await readCounters(own.redis, names.key);
  return [await own.redis.hget(names.key, "month"), spent, clock_ms];
}

/** Admits one, and answers it with the outcome. */
async function admit(key: KeyRef, price = 10): Promise<{ generation: Generation; outcome: string }> {
  const generation = stage.request(key, { price });
  return { generation, outcome: (await stage.admit(generation)).outcome };
}

test("the month of a day is the same in Lua as in TypeScript, over 500 years", async () => {
  const include = (name: string): string => readFileSync(join(LUA_FOLDER, `include/${name}.lua`), "utf8");
  const days = times(182_621, (day) => day);
  const source = `${include("clock")}
    local months = {}
    for day = 0, tonumber(ARGV[1]) - 1 do months[day + 1] = month_of(day * DAY_MS) end
    return cjson.encode(months)`;
  const months = JSON.parse(String(await stage.redis.eval(source, 0, days.length))) as number[];
  expect(months).toEqual(days.map((day) => monthOf(day * DAY)));
});

// Guarantee: what is held and consumed together never exceeds the cap.
test("requests at the same time never exceed the cap together", async () => {
  const key = await givenKey(50);
  const outcomes = await Promise.all(times(9, async () => (await admit(key)).outcome));
  expect(outcomes.filter((outcome) => outcome === "admitted")).toHaveLength(5);
  expect(outcomes.filter((outcome) => outcome === "spend_capped")).toHaveLength(4);
  expect(await spent(key)).toBe(50);
});

test("a refusal says the cap and what is spent, writes nothing, and comes after the slots and before the credits", async () => {
  const key = await givenKey(25, 25);
  await admit(key, 20);
  await setKeyFields(stage.redis, key.names.key, { max_concurrent: 1 });
  expect(await admit(key, 6)).toMatchObject({ outcome: "concurrency_limited" });
  await setKeyFields(stage.redis, key.names.key, { max_concurrent: 9 });
  const before = await stage.everything();
  const refused = await stage.admit(stage.request(key, { price: 6 }));
  expect(refused).toMatchObject({ outcome: "spend_capped", cap: 25, spent: 20, state: { active: 1 } });
  expect(await stage.everything()).toEqual(before);
  expect(await admit(key, 5)).toMatchObject({ outcome: "admitted" });
  expect(await admit(key, 1)).toMatchObject({ outcome: "spend_capped" });
  await setKeyFields(stage.redis, key.names.key, { monthly_credits: 100 });
  expect(await admit(key, 1)).toMatchObject({ outcome: "insufficient_credits" });
});

test("a refused request, an unsent one and a refund give room back, once; a completed task does not", async () => {
  const key = await givenKey(10);
  for (const reason of ["refused", "unsent"] as const) {
    const { generation } = await admit(key);
    await Promise.all(times(2, () => stage.void(generation, reason)));
    expect(await spent(key), reason).toBe(0);
  }
  const failing = stage.request(key);
  await stage.givenTask(failing);
  expect((await admit(key, 1)).outcome).toBe("spend_capped");
  await Promise.all(times(2, () => stage.observe(failing, "failed")));
  expect(await spent(key)).toBe(0);
  const completed = stage.request(key);
  await stage.givenTask(completed);
  await stage.observe(completed, "completed");
  expect(await spent(key)).toBe(10);
});

test("a hold that ended by itself gives room back; its late BIND takes it again, above the cap if need be", async () => {
  const key = await givenKey(10);
  const { generation } = await admit(key);
  stage.clock.nowMs += HOLD_MS;
  await stage.void(generation, "due");
  expect((await admit(key)).outcome).toBe("admitted");
  expect(await stage.bind(generation)).toBe("late");
  expect(await spent(key)).toBe(20);
  await stage.bind(generation);
  expect(await spent(key)).toBe(20);
});

test("a new month begins at 0, and nothing of the month before is given back to it", async () => {
  const key = await givenKey(20);
  const { generation: held } = await admit(key);
  const task = stage.request(key);
  await stage.givenTask(task);
  expect((await admit(key)).outcome).toBe("spend_capped");
  stage.clock.nowMs += 31 * DAY;
  expect((await admit(key)).outcome).toBe("admitted");
  expect(await spent(key)).toBe(10);
  await stage.void(held, "due");
  await stage.observe(task, "failed");
  expect(await spent(key)).toBe(10);
  await stage.bind(held);
  expect(await spent(key)).toBe(10);
});

test("a cap set in mid-month counts what was spent before it", async () => {
  const key = await stage.givenKey();
  await admit(key, 30);
  await setKeyFields(stage.redis, key.names.key, { monthly_credits: 35 });
  expect((await admit(key)).outcome).toBe("spend_capped");
  expect((await admit(key, 5)).outcome).toBe("admitted");
});

const ACTOR = { by: "cli test", requestId: "" };
/** Fields that an operator sets, beside the month that is removed, of a key that has stood still since its clock was ahead (decision 0008). */
const REMEDY = { clock_ms: 0, spent: 0 } as const;
const JUNE = Date.UTC(2031, 5, 1);

async function clockAheadAndBack(own: Stage, key: KeyRef, ahead: () => Promise<unknown>): Promise<void> {
  own.clock.nowMs += 40 * DAY;
  await ahead();
  own.clock.nowMs -= 40 * DAY;
  await changeCounters(own.redis, key.names.key, REMEDY);
  await own.redis.hdel(key.names.key, "month");
  await own.redis.del(key.names.window);
}

describe("a key that replaces another", () => {
  /** A key with a cap of 20 that has a task and a hold of 10 each, and the key that replaces it. */
  async function givenRotation(overlapMs: number) {
    const accountId = randomId("acc");
    const own = createStage(connection, { clock: "redis", partition: partitionOf(accountId, 64) });
    const old = await own.givenKey({ accountId, credits: 1000 });
    await setKeyFields(own.redis, old.names.key, { monthly_credits: 20 });
    const [task, hold] = [own.request(old), own.request(old)];
    await own.givenTask(task);
    await own.admit(hold);
    const nodes = oneNode(connection.redis);
    const read = async (keyId: string) => (await readKey(nodes, keyId, accountId))!;
    const { keyId } = await rotateKey(nodes, await read(old.keyId), overlapMs, ACTOR);
    const admitted = async (by: KeyRef) => (await own.admit(own.request(by))).outcome;
    return { own, old, task, hold, read, nodes, admitted, heir: keyRef(keyId, accountId, own.partition) };
  }

  // Guarantee: a cap holds for both keys together, also while both are good.
  test("spends from the same month, and what is given back of one gives room to both", async () => {
    const { own, old, heir, task, hold, read, admitted } = await givenRotation(60_000);
    expect(await admitted(heir)).toBe("spend_capped");
    await own.observe(task, "failed");
    expect(await admitted(heir)).toBe("admitted");
    expect(await admitted(old)).toBe("spend_capped");
    await own.void(hold, "refused");
    expect((await read(heir.keyId)).spentThisMonth).toBe(10);
    expect((await read(old.keyId)).spentThisMonth).toBe(10);
    expect(await admitted(old)).toBe("admitted");
    expect(await admitted(heir)).toBe("spend_capped");
  });

  test("is replaced itself, and all three count together", async () => {
    const { own, heir, task, nodes, read, admitted } = await givenRotation(0);
    const { keyId } = await rotateKey(nodes, await read(heir.keyId), 0, ACTOR);
    const third = keyRef(keyId, heir.accountId, own.partition);
    expect(await admitted(third)).toBe("spend_capped");
    await own.observe(task, "failed");
    expect(await admitted(third)).toBe("admitted");
    expect((await read(third.keyId)).spentThisMonth).toBe(20);
  });
});

describe("only the month that a key is in counts", () => {
  test("what was admitted while the clock was ahead changes neither month nor clock after the remedy", async () => {
    const key = await givenKey(1000);
    const [task, hold, late] = [stage.request(key), stage.request(key), stage.request(key)];
    await clockAheadAndBack(stage, key, async () => {
      await stage.givenTask(task);
      await stage.admit(hold);
      await stage.admit(late);
      await stage.void(late, "released");
    });
    await admit(key, 20);
    await stage.observe(task, "failed");
    await stage.void(hold, "refused");
    expect(await stage.bind(late)).toBe("late");
    expect((await stored(stage, key)).map(Number)).toEqual([
      monthOf(stage.clock.nowMs),
      20,
      stage.clock.nowMs,
    ]);
  });

  test("an operator's refund of a task that failed unrefunded goes by its admission", async () => {
    stage.clock.nowMs = JUNE + 30 * 60_000;
    const early = await givenKey(1000);
    const task = stage.request(early);
    await stage.givenTask(task);
    await stage.observe(task, "failed", { refundFailed: false });
    await refundByOperator(stage, task);
    expect(await spent(early)).toBe(0);

    stage.clock.nowMs = JUNE - 60_000;
    const key = await givenKey(1000);
    const { generation: late } = await admit(key);
    stage.clock.nowMs = JUNE + 2 * 3_600_000;
    await stage.void(late, "due");
    await stage.givenTask(stage.request(key));
    expect(await stage.bind(late)).toBe("late");
    await stage.observe(late, "failed", { refundFailed: false });
    await refundByOperator(stage, late);
    expect(await spent(key)).toBe(10);
  });

  // Guarantee: an operator's refund gives room in the month of the admission, and in no other, however late it comes.
  test.each(CHARGES)(
    "a task $what gives room in the month of its admission, also without its record",
    async ({ admittedMs, chargedMs }) => {
      const key = await givenKey(1000);
      expect(await spentAfterRefund(stage, key, admittedMs, chargedMs)).toBe(10);
    },
  );
});

/** When a request was admitted and charged, by the beginning of June. */
const CHARGES = [
  { what: "charged in a month's first hour", admittedMs: 10 * 60_000, chargedMs: 11 * 60_000 },
  { what: "charged in one, and admitted before it", admittedMs: -10 * 60_000, chargedMs: 10 * 60_000 },
  {
    what: "charged two hours into a month, and admitted before it",
    admittedMs: -10 * 60_000,
    chargedMs: 2 * 3_600_000,
  },
  { what: "charged hours later", admittedMs: 10 * 60_000, chargedMs: 2 * 3_600_000 },
  { what: "charged a day later", admittedMs: 10 * 60_000, chargedMs: DAY },
];

/**
 * Credits that a key has spent in June of 10 for a task whose record is gone when an operator refunds it, and of 10 for another task.
 * That is the price of the other one: the first is given back, or is of May.
 */
async function spentAfterRefund(
  own: Stage,
  key: KeyRef,
  admittedMs: number,
  chargedMs: number,
): Promise<number> {
  own.clock.nowMs = JUNE + admittedMs;
  const [task, other] = [own.request(key), own.request(key)];
  await own.admit(task);
  own.clock.nowMs = JUNE + chargedMs;
  await own.bind(task);
  await own.observe(task, "completed");
  await own.givenTask(other);
  await own.redis.del(requestName(own.partition, task.requestId));
  await refundByOperator(own, task);
  return spent(key);
}

/** As the command does it: the charge is looked for in the ledger. */
async function refundByOperator(
  own: Stage,
  { requestId, key: { accountId } }: Pick<Generation, "requestId" | "key">,
): Promise<void> {
  const { partition } = own;
  const found = await own.redis.xrange(partitionNames(partition).ledger, "-", "+");
  const stored = found.find(([, flat]) => {
    const { request_id, type } = entryFields(flat);
    return request_id === requestId && type === "consume";
  })!;
  const charge = chargeEntry(partition, stored);
  const call = { partition, accountId, requestId, reference: requestId, reason: "r", actor: ACTOR };
  expect((await own.refund({ ...call, charge }))[0]).toBe("refunded");
}

// Guarantee: what the model does not know of caps is known here; a mistake in it shows.
test.each(inShare(SPENDING_MUTANTS))("the mistake is found: $what", async (mutant) => {
  expect(await lived(mutant)).not.toEqual(await lived());
});

/** Results of caps where keys replace each other, and clocks were ahead. */
async function lived(mutant?: Mutant): Promise<unknown[]> {
  const folder = mutant && (await plantForTest(mutant));
  const client = createClient(inject("redisUrl"), 10_000);
  try {
    await client.connect();
    const scripts = createScriptRunner(client, folder === undefined ? {} : { folder });
    const own = createStage(connection, { scripts });
    return [
      ...(await livedRotated(own)),
      ...(await livedBehind(own)),
      ...(await livedAhead(own)),
      ...(await livedCharges(own)),
    ];
  } finally {
    client.disconnect();
  }
}

async function livedRotated(own: Stage): Promise<unknown[]> {
  const old = await own.givenKey();
  const heir = await own.givenKey({ accountId: old.accountId });
  await setKeyFields(own.redis, heir.names.key, { spends_in: old.keyId, monthly_credits: 40 });
  const outcomes: unknown[] = [];
  const [one, two] = [own.request(old), own.request(heir)];
  for (const each of [one, two, own.request(heir), own.request(heir)])
    outcomes.push((await own.admit(each)).outcome);
  outcomes.push((await own.admit(own.request(heir))).outcome);
  await own.void(two, "refused");
  outcomes.push((await stored(own, old))[1], (await stored(own, heir))[1]);
  // The clock of the heir is a month behind that of the old key.
  await own.redis.hset(old.names.key, "month", monthOf(own.clock.nowMs) + 1);
  await changeCounters(own.redis, old.names.key, { spent: 40 });
  await changeCounters(own.redis, heir.names.key, { day: -1 });
  outcomes.push((await own.admit(own.request(heir))).outcome);
  await own.bind(one);
  return outcomes;
}

/** A key that was restored where the clock was a month behind. */
async function livedBehind(own: Stage): Promise<unknown[]> {
  const key = await own.givenKey();
  const task = own.request(key);
  await own.givenTask(task);
  await own.redis.hset(key.names.key, "month", monthOf(own.clock.nowMs) - 1);
  await changeCounters(own.redis, key.names.key, { spent: 5 });
  await own.observe(task, "failed");
  return stored(own, key);
}

async function livedCharges(own: Stage): Promise<unknown[]> {
  const left: unknown[] = [];
  for (const { admittedMs, chargedMs } of CHARGES)
    left.push(await spentAfterRefund(own, await own.givenKey(), admittedMs, chargedMs));
  return left;
}

async function livedAhead(own: Stage): Promise<unknown[]> {
  const key = await own.givenKey();
  const task = own.request(key);
  const late = own.request(key);
  await clockAheadAndBack(own, key, async () => {
    await own.givenTask(task);
    await own.admit(late);
    await own.void(late, "released");
  });
  await own.admit(own.request(key));
  await own.observe(task, "failed");
  await own.bind(late);
  const left = await stored(own, key);
  await own.redis.hdel(key.names.key, "month");
  await changeCounters(own.redis, key.names.key, { spent: 0 });
  await own.void(task, "released");
  left.push(await own.redis.hget(key.names.key, "month"));
  // A charge whose admission the store has lost, in a month of which the key knows nothing.
  own.clock.nowMs += 40 * DAY;
  const lost = { ...own.request(key), admittedAtMs: own.clock.nowMs };
  await own.bind(lost);
  return [...left, ...(await stored(own, key))];
}

// Guarantee: a gateway knows from each answer until when a key may be used, and what it may still spend, if Redis goes away then.
test("each script answers when a key ends, its cap, and what it has spent of that", async () => {
  const key = await givenKey(40);
  const expiresAtMs = stage.clock.nowMs + DAY;
  await setKeyFields(stage.redis, key.names.key, { expires_at: expiresAtMs });
  const terms = (spent: number) => ({ expiresAtMs, cap: 40, spent });
  const inspect = () => stage.store.inspect(key, stage.tiers);
  expect(await inspect()).toMatchObject({ tier: "standard", terms: terms(0) });
  expect(await stage.admit(stage.request(key, { price: 10 }))).toMatchObject({
    ...{ outcome: "admitted", tier: "standard" },
    terms: terms(10),
  });
  expect(await stage.admit(stage.request(key, { price: 40 }))).toMatchObject({
    ...{ outcome: "spend_capped" },
    terms: terms(10),
  });
  expect(await inspect()).toMatchObject({ terms: terms(10) });
  expect(await stage.credits(key)).toMatchObject({ tier: "standard", terms: terms(10) });
  await setKeyFields(stage.redis, key.names.key, { monthly_credits: null });
  expect((await inspect()).terms).toEqual({
    ...{ expiresAtMs, cap: Number.POSITIVE_INFINITY },
    spent: 0,
  });
  await setKeyFields(stage.redis, key.names.key, { expires_at: null });
  expect((await inspect()).terms).toBeUndefined();
});
