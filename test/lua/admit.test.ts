import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { SHADOW_LIMITS, type ShadowLimit } from "../../src/domain/limits.ts";
import type { KeyRef } from "../../src/records/names.ts";
import type { Reply } from "../../src/scripts/script-definition.ts";
import { changeAccount } from "../support/account-money.ts";
import {
  createStage,
  HOLD_MS,
  NOON_MS,
  openConnection,
  randomId,
  type Stage,
  type TestConnection,
  times,
} from "../support/store.ts";
import { readCounters, setKeyFields } from "../support/stored-records.ts";

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

const admit = (key: KeyRef, price = 10) => stage.admit(stage.request(key, { price }));
const idempotency = (fingerprint = "a body") => ({ digest: "digest-of-a-key", fingerprint });

test("an admission holds the price, a slot, and one request of the minute, the day and the total", async () => {
  const key = await stage.givenKey({ credits: 100, rate_limit: 5, max_concurrent: 2, daily_limit: 9 });
  const generation = stage.request(key, { price: 30 });
  expect(await stage.admit(generation)).toEqual({
    outcome: "admitted",
    admittedAtMs: stage.clock.nowMs,
    atMs: stage.clock.nowMs,
    tier: "standard",
    state: { limit: 5, remaining: 4, resetAtMs: NOON_MS + 60_000, concurrentLimit: 2, active: 1 },
  });
  expect(await stage.credits(key)).toMatchObject({ balance: 70, totalUsed: 0, totalRequests: 1 });
  expect(await stage.held(key)).toBe(30);
  expect(await stage.redis.zscore(key.names.due, generation.requestId)).toBe(String(NOON_MS + HOLD_MS));
  expect(await readCounters(stage.redis, key.names.key)).toMatchObject({ day_count: "1", limits: "5 2 9" });
});

test("an ADMIT that runs again, at once or late, has the effect of once", async () => {
  const key = await stage.givenKey();
  const generation = stage.request(key);
  const call = await stage.onItsWay(() => stage.admit(generation));
  expect((await stage.arrive(call))[0]).toBe("admitted");
  const before = await stage.everything();
  stage.clock.nowMs += 3_600_000;
  expect((await stage.arrive(call))[0]).toBe("admitted");
  expect(await stage.everything()).toEqual(before);
  await stage.bind(generation);
  expect((await stage.arrive(call))[0]).toBe("admitted");
  expect(await stage.credits(key)).toMatchObject({ balance: 990, totalUsed: 10, totalRequests: 1 });
});

interface Refusal {
  outcome: string;
  more?: Record<string, unknown>;
  given(): Promise<() => Promise<{ outcome: string }>>;
}

const held = idempotency();
const FIRST_TASK = randomId("task");
const refusals: Refusal[] = [
  {
    outcome: "rate_limited",
    more: { retryAfterMs: 60_000 },
    async given() {
      const key = await stage.givenKey({ rate_limit: 2 });
      await Promise.all([admit(key), admit(key)]);
      return () => admit(key);
    },
  },
  {
    outcome: "daily_limited",
    more: { retryAfterMs: 12 * 3_600_000, limit: 1, used: 2 },
    async given() {
      const key = await stage.givenKey({ daily_limit: 2 });
      await Promise.all([admit(key), admit(key)]);
      await setKeyFields(stage.redis, key.names.key, { daily_limit: 1 });
      return () => admit(key);
    },
  },
  {
    outcome: "concurrency_limited",
    async given() {
      const key = await stage.givenKey({ max_concurrent: 1 });
      await stage.givenTask(stage.request(key));
      return () => admit(key);
    },
  },
  {
    outcome: "insufficient_credits",
    more: { balance: 5 },
    async given() {
      const key = await stage.givenKey({ credits: 15 });
      await admit(key);
      return () => admit(key);
    },
  },
  ...(["suspended", "closed"] as const).map((status) => ({
    outcome: "account_suspended",
    more: { status },
    async given() {
      const key = await stage.givenKey({ rate_limit: 1, credits: 10 });
      await stage.givenTask(stage.request(key, { idempotency: held }));
      await changeAccount(stage.redis, key.names.account, { status });
      return () => stage.admit(stage.request(key, { idempotency: held }));
    },
  })),
  {
    outcome: "replayed",
    more: { taskId: FIRST_TASK, data: `{"task_id":"${FIRST_TASK}"}` },
    async given() {
      const key = await stage.givenKey({ rate_limit: 1, credits: 10 });
      const first = stage.request(key, { idempotency: held });
      await stage.admit(first);
      await stage.bind(first, FIRST_TASK, `{"task_id":"${FIRST_TASK}"}`);
      return () => stage.admit(stage.request(key, { idempotency: held }));
    },
  },
  {
    outcome: "idempotency_mismatch",
    async given() {
      const key = await stage.givenKey({ rate_limit: 1, credits: 10 });
      await stage.admit(stage.request(key, { idempotency: held }));
      return () => stage.admit(stage.request(key, { idempotency: idempotency("another") }));
    },
  },
  {
    outcome: "idempotency_in_progress",
    more: { retryAfterMs: HOLD_MS },
    async given() {
      const key = await stage.givenKey({ rate_limit: 1, credits: 10 });
      await stage.admit(stage.request(key, { idempotency: held }));
      return () => stage.admit(stage.request(key, { idempotency: held }));
    },
  },
  {
    outcome: "stale",
    async given() {
      const call = await stage.onItsWay(async () => admit(await stage.givenKey()));
      stage.clock.nowMs += connection.commandTimeoutMs + 1;
      return async () => ({ outcome: String((await stage.arrive(call))[0]) });
    },
  },
  {
    outcome: "void",
    async given() {
      const generation = stage.request(await stage.givenKey());
      await stage.void(generation, "unsent");
      return () => stage.admit(generation);
    },
  },
  {
    outcome: "unknown_key",
    async given() {
      const key = await stage.givenKey();
      await setKeyFields(stage.redis, key.names.key, { revoked_at: NOON_MS });
      return () => admit(key);
    },
  },
];

test.each(refusals)("a refusal writes nothing: $outcome", async ({ outcome, more = {}, given }) => {
  const ask = await given();
  const before = await stage.everything();
  expect(await ask()).toMatchObject({ outcome, ...more });
  expect(await stage.everything()).toEqual(before);
});

test.each(["revoked", "expired"])(
  "an ADMIT that comes again after its key was %s is answered as before; a new one is refused",
  async (how) => {
    const key = await stage.givenKey();
    const idempotency = { digest: "d1", fingerprint: "f1" };
    const [admitted, voided] = [stage.request(key, { idempotency }), stage.request(key)];
    await stage.admit(admitted);
    await stage.void(voided, "unsent");
    const field = how === "revoked" ? "revoked_at" : "expires_at";
    await setKeyFields(stage.redis, key.names.key, { [field]: NOON_MS });
    const before = await stage.everything();
    expect(await stage.admit(admitted)).toMatchObject({ outcome: "admitted", state: { active: 1 } });
    expect(await stage.admit(voided)).toMatchObject({ outcome: "void" });
    expect(await stage.admit(stage.request(key, { idempotency }))).toMatchObject({ outcome: "unknown_key" });
    expect(await stage.everything()).toEqual(before);
  },
);

test("window, day, slots and credits are asked in this order", async () => {
  const key = await stage.givenKey({ credits: 10, rate_limit: 1, daily_limit: 1, max_concurrent: 1 });
  await admit(key);
  const outcomes: string[] = [];
  for (const lifted of ["rate_limit", "daily_limit", "max_concurrent"]) {
    outcomes.push((await admit(key)).outcome);
    await setKeyFields(stage.redis, key.names.key, { [lifted]: 9 });
  }
  outcomes.push((await admit(key)).outcome);
  expect(outcomes).toEqual(["rate_limited", "daily_limited", "concurrency_limited", "insufficient_credits"]);
});

// Elsewhere an account that had paid often was trusted, and went below zero.
test.each(["standard", "enterprise"])("no account is trusted: tier %s, after much paid use", async (tier) => {
  const key = await stage.givenKey({ credits: 1_000_000, tier });
  await stage.givenTask(stage.request(key, { price: 999_995 }));
  expect(await admit(key, 6)).toMatchObject({ outcome: "insufficient_credits", balance: 5 });
  expect(await admit(key, 5)).toMatchObject({ outcome: "admitted" });
  expect(await admit(key, 1)).toMatchObject({ outcome: "insufficient_credits", balance: 0 });
});

test("an ADMIT at its not_after is in time, one ms later it is stale", async () => {
  const key = await stage.givenKey();
  const [first, second] = await Promise.all(times(2, () => stage.request(key)));
  const [inTime, late] = [
    await stage.onItsWay(() => stage.admit(first!)),
    await stage.onItsWay(() => stage.admit(second!)),
  ];
  stage.clock.nowMs += connection.commandTimeoutMs;
  expect((await stage.arrive(inTime))[0]).toBe("admitted");
  stage.clock.nowMs += 1;
  expect((await stage.arrive(late))[0]).toBe("stale");
});

test("a key is good until the ms at which it expires, and unknown from then on", async () => {
  const key = await stage.givenKey({ expiresAtMs: NOON_MS + 1000 });
  stage.clock.nowMs += 999;
  expect(await admit(key)).toMatchObject({ outcome: "admitted" });
  stage.clock.nowMs += 1;
  const zeros = {
    limit: 0,
    remaining: 0,
    resetAtMs: stage.clock.nowMs,
    concurrentLimit: 0,
    active: 0,
  };
  expect(await admit(key)).toEqual({
    ...{ outcome: "unknown_key", tier: "", state: zeros },
    atMs: stage.clock.nowMs,
  });
  expect(await stage.store.inspect(key, stage.tiers)).toMatchObject({ outcome: "unknown_key", state: zeros });
  expect(await stage.credits(key)).toMatchObject({ outcome: "unknown_key", state: zeros });
  expect(await stage.credits(key)).not.toHaveProperty("balance");
});

test("a key that never was is unknown", async () => {
  const key = await stage.givenKey();
  const stranger = { ...key, names: { ...key.names, key: `${key.names.key}x` } };
  expect(await admit(stranger)).toMatchObject({ outcome: "unknown_key" });
});

test.each([
  ["a tier's limits", "enterprise", {}, [100, 10, 10_000]],
  ["an unknown tier means the standard one, never no limit", "enterprize", {}, [20, 3, 500]],
  ["a tier whose name begins another's", "enter", {}, [20, 3, 500]],
  ["own limits go before those of the tier", "enterprise", { rate_limit: 7 }, [7, 10, 10_000]],
  ["each limit on its own", "standard", { max_concurrent: 1, daily_limit: 2 }, [20, 1, 2]],
  ["a limit of zero is a limit", "enterprise", { rate_limit: 0 }, [0, 10, 10_000]],
])(
  "/credits reports what is enforced: %s",
  async (_, tier, own, [rate_limit, max_concurrent, daily_limit]) => {
    const key = await stage.givenKey({ tier, ownLimits: false, ...own });
    const account = await stage.account(key);
    expect(account.limits).toEqual({ rate_limit, max_concurrent, daily_limit });
    const { state: enforced, outcome } = await admit(key);
    expect(enforced).toMatchObject({ limit: rate_limit, concurrentLimit: max_concurrent });
    expect(outcome).toBe(rate_limit === 0 ? "rate_limited" : "admitted");
  },
);

test("after a limit was lowered, retry says when one fits and reset when the oldest leaves", async () => {
  const key = await stage.givenKey({ rate_limit: 5 });
  for (let at = 0; at < 5; at++) {
    await admit(key);
    stage.clock.nowMs += 1000;
  }
  await setKeyFields(stage.redis, key.names.key, { rate_limit: 2 });
  const refused = await admit(key);
  const state = { limit: 2, remaining: 0, resetAtMs: NOON_MS + 60_000 };
  expect(refused).toMatchObject({ outcome: "rate_limited", retryAfterMs: 58_000, state });
  stage.clock.nowMs += 58_000 - 1;
  expect(await admit(key)).toMatchObject({ outcome: "rate_limited", retryAfterMs: 1 });
  stage.clock.nowMs += 1;
  expect(await admit(key)).toMatchObject({ outcome: "admitted", state: { remaining: 0 } });
});

// The window's list once grew for ever when each request found it empty.
test("a key that asks less than once a minute keeps one window entry", async () => {
  const key = await stage.givenKey();
  for (let at = 0; at < 5; at++) {
    await admit(key);
    stage.clock.nowMs += 60_000;
  }
  expect(await stage.redis.llen(key.names.window)).toBe(1);
});

test("an Idempotency-Key is one per account, over all of its keys", async () => {
  const key = await stage.givenKey();
  const sibling = await stage.givenKey({ accountId: key.accountId });
  const first = stage.request(key, { idempotency: held });
  await stage.givenTask(first);
  expect(await stage.admit(stage.request(sibling, { idempotency: held }))).toMatchObject({
    outcome: "replayed",
    taskId: `task_${first.requestId}`,
  });
});

test("after a refusal by the upstream an Idempotency-Key may be used again", async () => {
  const key = await stage.givenKey();
  const [first, second] = times(2, () => stage.request(key, { idempotency: held }));
  await stage.admit(first!);
  await stage.void(first!, "refused");
  expect(await stage.admit(second!)).toMatchObject({ outcome: "admitted" });
  // The end of the first is told again, and takes nothing from the second.
  await stage.void(first!, "refused");
  expect(await stage.admit(stage.request(key, { idempotency: held }))).toMatchObject({
    outcome: "idempotency_in_progress",
  });
});

// Guarantee: a limit that is tried out changes nothing for customers, and everything else goes on as if it were not.
test("a limit in shadow mode is noted and does not refuse; the others do", async () => {
  const limits = { rate_limit: 1, max_concurrent: 1, daily_limit: 1 };
  const watched = (...shadow: ShadowLimit[]) =>
    createStage(connection, { tiers: { standard: { ...limits, shadow } } });
  const cases = [
    { given: ["rate_limit"], outcome: "daily_limited" },
    { given: ["rate_limit", "daily_limit"], outcome: "concurrency_limited" },
    { given: ["max_concurrent", "daily_limit"], outcome: "rate_limited" },
    { given: SHADOW_LIMITS, outcome: "admitted", shadow: [...SHADOW_LIMITS] },
  ] as const;
  for (const { given, outcome, ...noted } of cases) {
    stage = watched(...given);
    const key = await stage.givenKey({ ownLimits: false });
    const first = await admit(key);
    expect(first).not.toHaveProperty("shadow");
    expect(await admit(key), given.join()).toMatchObject({ outcome, ...noted });
  }
  // In a stage where nothing but credits refuses, the numbers of the headers stay true.
  const key = await stage.givenKey({ ownLimits: false, credits: 30 });
  await times(2, () => admit(key));
  expect(await admit(key)).toMatchObject({
    outcome: "admitted",
    state: { limit: 1, remaining: 0, concurrentLimit: 1, active: 3 },
  });
  expect(await admit(key)).toMatchObject({ outcome: "insufficient_credits" });
  expect(await admit(key)).not.toHaveProperty("shadow");
});

// Guarantee: one more limit in the tiers cannot shift the others.
test("numbers behind the known limits of a tier are ignored", async () => {
  const packed = ";standard 5 2 9 7;gold 6 3 8 4 1rc;silver 4 1 7;";
  const rateAndSlots = { standard: ["5", "2", "9"], gold: ["6", "3", "8rc"], silver: ["4", "1", "7"] };
  for (const [tier, [rate, slots, daily]] of Object.entries(rateAndSlots)) {
    const key = await stage.givenKey({ ownLimits: false, tier });
    const { script, item } = await stage.onItsWay(() => admit(key));
    const [reply] = await connection.scripts.send(script, [{ ...item, shared: [item.shared[0]!, packed] }]);
    const numbers = (reply as Reply).slice(0, 4);
    expect(numbers, tier).toEqual(["admitted", stage.clock.nowMs, Number(rate), Number(rate) - 1]);
    expect((await readCounters(stage.redis, key.names.key)).limits).toBe(`${rate} ${slots} ${daily}`);
  }
});
