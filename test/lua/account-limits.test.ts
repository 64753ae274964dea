import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Limits } from "../../src/domain/limits.ts";
import { accountNames, type KeyRef, keyNames } from "../../src/records/names.ts";
import { createScriptRunner } from "../../src/redis/script-runner.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { gather } from "../../src/scripts/keys.ts";
import { changeAccount } from "../support/account-money.ts";
import {
  createStage,
  HOLD_MS,
  NOON_MS,
  openConnection,
  type Stage,
  setAccountLimits,
  type TestConnection,
  times,
} from "../support/store.ts";
import { setKeyFields } from "../support/stored-records.ts";
import { plantForTest } from "./mutant-client.ts";
import { GATHER_MUTANTS } from "./mutants.ts";

const HOUR = 3_600_000;

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

/** Two keys of one account with these limits over both; the keys' own refuse nothing. */
async function givenKeys(limits?: Partial<Limits>): Promise<[KeyRef, KeyRef]> {
  const first = await stage.givenKey();
  const second = await stage.givenKey({ accountId: first.accountId });
  if (limits) await setAccountLimits(stage, first, limits);
  return [first, second];
}

async function admit(key: KeyRef) {
  const generation = stage.request(key);
  return { ...(await stage.admit(generation)), generation };
}

const slotsOf = async ({ partition, accountId }: KeyRef): Promise<string[]> =>
  (await stage.redis.smembers(accountNames(partition, accountId).slots)).sort();

/** Names of what an account keeps only while it has limits. */
const ownRecords = async ({ partition, accountId }: KeyRef): Promise<number> => {
  const { window, slots } = accountNames(partition, accountId);
  return stage.redis.exists(window, slots);
};

interface Case {
  limits: Partial<Limits>;
  outcome: string;
  more: Record<string, unknown>;
}

const cases: Case[] = [
  {
    limits: { rate_limit: 3 },
    outcome: "rate_limited",
    more: { retryAfterMs: 60_000, state: { limit: 3, remaining: 0, resetAtMs: NOON_MS + 60_000 } },
  },
  {
    limits: { max_concurrent: 3 },
    outcome: "concurrency_limited",
    more: { state: { concurrentLimit: 3, active: 3 } },
  },
  {
    limits: { daily_limit: 3 },
    outcome: "daily_limited",
    more: { retryAfterMs: 12 * HOUR, limit: 3, used: 3 },
  },
];

// Guarantee: however many keys an account has, together they get what the account may have.
test.each(cases)(
  "requests of two keys at the same time stop at the account's limit: $outcome",
  async ({ limits, outcome, more }) => {
    const keys = await givenKeys(limits);
    const replies = await Promise.all(times(8, (at) => admit(keys[at % 2]!)));
    expect(replies.filter((reply) => reply.outcome === "admitted")).toHaveLength(3);
    expect(replies.filter((reply) => reply.outcome === outcome)).toHaveLength(5);
    const before = await stage.everything();
    for (const key of keys) {
      const { generation: _, ...refused } = await admit(key);
      expect(refused).toMatchObject({ outcome, limitOf: "account", ...more });
    }
    expect(await stage.everything()).toEqual(before);
  },
);

test("a key's own limit refuses first, and says that it is the key's", async () => {
  const [key] = await givenKeys({ rate_limit: 1, max_concurrent: 1, daily_limit: 1 });
  await admit(key);
  const outcomes: string[] = [];
  for (const field of ["rate_limit", "daily_limit", "max_concurrent"]) {
    await setKeyFields(stage.redis, key.names.key, { [field]: 1 });
    const { outcome, ...refused } = await admit(key);
    outcomes.push(`${outcome} ${"limitOf" in refused ? refused.limitOf : ""}`);
    await setKeyFields(stage.redis, key.names.key, { [field]: 9 });
    await stage.redis.hdel(key.names.account, field);
  }
  expect(outcomes).toEqual(["rate_limited key", "daily_limited key", "concurrency_limited key"]);
});

test("headers and credits show the account's numbers where they leave less, and else the key's", async () => {
  const [key, other] = await givenKeys({ rate_limit: 5, max_concurrent: 2, daily_limit: 6 });
  await setKeyFields(stage.redis, key.names.key, { rate_limit: 3, max_concurrent: 9, daily_limit: 9 });
  const { state } = await admit(key);
  expect(state).toEqual({
    limit: 3,
    remaining: 2,
    resetAtMs: NOON_MS + 60_000,
    concurrentLimit: 2,
    active: 1,
  });
  await stage.void((await admit(other)).generation, "refused");
  await stage.void((await admit(other)).generation, "refused");
  stage.clock.nowMs += 1000;
  const seen = await stage.store.inspect(key, stage.tiers);
  expect(seen.state, "both leave two; the key's own are shown").toMatchObject({ limit: 3, remaining: 2 });
  await stage.void((await admit(other)).generation, "refused");
  expect((await stage.store.inspect(key, stage.tiers)).state).toMatchObject({
    limit: 5,
    remaining: 1,
    resetAtMs: NOON_MS + 60_000,
  });
  expect(await stage.credits(key)).toMatchObject({ limits: { daily_limit: 6 } });
  expect(await stage.credits(other)).toMatchObject({ limits: { daily_limit: 6 }, state: { limit: 5 } });
});

test("over a step of the clock an account's window never admits too many and never refuses falsely", async () => {
  const keys = await givenKeys({ rate_limit: 3 });
  const admitted: number[] = [];
  for (let at = 0; at < 60; at++) {
    if (at === 20) stage.clock.nowMs -= HOUR;
    if (at === 40) stage.clock.nowMs += HOUR;
    stage.clock.nowMs += 7000;
    const clock = Math.max(stage.clock.nowMs, ...admitted);
    const counted = admitted.filter((stamp) => stamp > clock - 60_000).length;
    const { outcome } = await admit(keys[at % 2]!);
    expect(outcome, `request ${at}`).toBe(counted < 3 ? "admitted" : "rate_limited");
    if (outcome === "admitted") admitted.push(clock);
  }
});

const SLOTS = { one: 450, ...Object.fromEntries(times(200, (at) => [`short-${at}`, at % 7])) };
/** As SSCAN fills a page, it may have a few more slots than it was asked for. */
const GATHERED_MAX = 250;
const CALLS_MAX = 30;

/** Gathers the slots of a key with many and of many with few, with these scripts. @returns what came of it */
async function gathered(folder?: string): Promise<string> {
  const [{ partition, accountId, names }] = await givenKeys();
  const { slots } = accountNames(partition, accountId);
  await changeAccount(stage.redis, names.account, { limited: "1" });
  for (const [name, count] of Object.entries(SLOTS))
    if (count > 0)
      await stage.redis.sadd(
        keyNames(partition, accountId + name).slots,
        ...times(count, (at) => `${name}-${at}`),
      );
  const { run } = createScriptRunner(connection.redis, folder === undefined ? {} : { folder });
  let [keyIds, cursor, before] = [Object.keys(SLOTS).map((name) => accountId + name), "0", 0];
  for (let calls = 1; keyIds.length > 0; calls++) {
    const reply = await run(gather, { partition, accountId, keyIds, cursor });
    if (reply.outcome !== "gathered" || calls > CALLS_MAX) return `${reply.outcome} after ${calls} calls`;
    keyIds = keyIds.slice(reply.done);
    cursor = reply.cursor;
    const now = await stage.redis.scard(slots);
    if (now - before > GATHERED_MAX) return `${now - before} in one call`;
    before = now;
  }
  return `${before} gathered`;
}

const ALL_GATHERED = `${Object.values(SLOTS).reduce((sum, count) => sum + count)} gathered`;

// Guarantee: no call holds Redis for longer because a key has many open tasks, and none of them is left out.
test("the slots of a long key and of many short ones are gathered page by page, all of them", async () => {
  expect(await gathered()).toBe(ALL_GATHERED);
});

test.each(GATHER_MUTANTS)("a mistake in gathering shows: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  const found = await gathered(folder).catch((error: Error) => error.message);
  expect(found).not.toBe(ALL_GATHERED);
  expect(found).not.toContain("compiling script");
});

// Guarantee: setting limits while customers work misses no open task and invents none.
test("limits that are set while tasks are open count each of them once, whatever ends or begins meanwhile", async () => {
  const [key, other] = await givenKeys();
  const before = await Promise.all([admit(key), admit(key), admit(other), admit(other)]);
  const [bound, refused, , ended] = before.map(({ generation }) => generation) as Generation[];
  await stage.bind(ended!);
  // Marked, and no key is gathered yet.
  await setAccountLimits(stage, key, { max_concurrent: 9 }, []);
  expect(await slotsOf(key)).toEqual([]);
  await stage.void(refused!, "refused");
  await stage.bind(bound!);
  const during = await admit(key);
  await setAccountLimits(stage, key, { max_concurrent: 9 }, [key.keyId]);
  await stage.observe(ended!, "completed");
  const late = await admit(other);
  await setAccountLimits(stage, key, { max_concurrent: 9 }, [other.keyId, key.keyId]);
  const open = [before[0]!, before[2]!, during, late].map(({ generation }) => generation.requestId);
  expect(await slotsOf(key)).toEqual(open.sort());
  expect((await admit(key)).state).toMatchObject({ concurrentLimit: 9, active: 5 });
});

// Guarantee: the headers of a poll name the limit that leaves less, whether the task goes on or has ended by it.
test.each(["processing", "completed"] as const)(
  "a poll answers what the account has left: %s",
  async (status) => {
    const [key, other] = await givenKeys({ rate_limit: 5, max_concurrent: 4 });
    const { generation } = await admit(key);
    await stage.bind(generation);
    await admit(other);
    const { state } = await stage.observe(generation, status, { poller: other });
    const active = status === "processing" ? 2 : 1;
    expect(state).toMatchObject({ limit: 5, remaining: 3, concurrentLimit: 4, active });
  },
);

test("an account without limits has no records of its own; those of one that had some are gone", async () => {
  const [key] = await givenKeys();
  await admit(key);
  expect(await ownRecords(key)).toBe(0);
  await setAccountLimits(stage, key, { rate_limit: 9 });
  await admit(key);
  expect(await ownRecords(key)).toBe(2);
  await setAccountLimits(stage, key, {});
  expect(await ownRecords(key)).toBe(0);
  const fields = ["limited", "counters"];
  expect(await stage.redis.hmget(key.names.account, ...fields)).toEqual(fields.map(() => null));
  await setAccountLimits(stage, key, { rate_limit: 1 });
  expect((await admit(key)).outcome, "its window begins anew").toBe("admitted");
});

test("a late BIND takes a slot of its account, above the limit if need be", async () => {
  const [key, other] = await givenKeys({ max_concurrent: 1 });
  const { generation } = await admit(key);
  stage.clock.nowMs += HOLD_MS;
  await stage.void(generation, "due");
  const second = await admit(other);
  expect(await stage.bind(generation)).toBe("late");
  expect(await slotsOf(key)).toEqual([generation.requestId, second.generation.requestId].sort());
});

// Guarantee: a step of the store's clock over midnight opens no second day, for a key whose own clock never saw it either.
test("an account's clock never goes back", async () => {
  const [first, second] = await givenKeys({ daily_limit: 1 });
  const midnight = NOON_MS + 12 * HOUR;
  stage.clock.nowMs = midnight + 10_000;
  expect((await admit(first)).outcome).toBe("admitted");
  stage.clock.nowMs = midnight - 10_000;
  expect(await admit(second)).toMatchObject({ outcome: "daily_limited", limitOf: "account" });
  stage.clock.nowMs = midnight + 24 * HOUR;
  expect((await admit(second)).outcome).toBe("admitted");
});
