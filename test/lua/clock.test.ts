import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { idempotencyName, type KeyRef } from "../../src/records/names.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import {
  createStage,
  HOLD_MS,
  NOON_MS,
  openConnection,
  randomId,
  type Stage,
  type TestConnection,
} from "../support/store.ts";

// The store's clock may step. A key's own clock is the latest the store has told it at an admission.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const RETENTION = 7 * DAY;
const AHEAD = 8 * DAY;
const LIMIT = 3;

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

/** A BIND as a journal keeps it, and as it is on its way. */
const binding = async (generation: Generation) => {
  const { calls, deferred } = await stage.unsent(() => stage.bind(generation));
  return { inJournal: deferred!, onItsWay: calls[0]! };
};

/** A request that was charged; the reply was lost, and the BIND waits in a journal. */
async function givenLostReply(key: KeyRef, wanted: Partial<Generation> = {}) {
  const generation = stage.request(key, { retentionMs: RETENTION, ...wanted });
  expect((await stage.admit(generation)).outcome).toBe("admitted");
  const { inJournal, onItsWay } = await binding(generation);
  expect((await stage.arrive(onItsWay))[0]).toBe("bound");
  return { generation, inJournal };
}

/** The clock steps ahead and back; meanwhile everything that has ended is collected. */
async function collectAhead(byMs = AHEAD): Promise<number> {
  stage.clock.nowMs += byMs;
  const { collected } = await stage.sweeps.collect(stage.partition, RETENTION, 100);
  stage.clock.nowMs -= byMs;
  return collected;
}

const admit = async (key: KeyRef) => {
  const generation = stage.request(key);
  return { ...(await stage.admit(generation)), generation };
};

const steps = [-SECOND, -61 * SECOND, -HOUR, -13 * HOUR, SECOND, 61 * SECOND, HOUR, 13 * HOUR];

test.each(steps)(
  "over a step of %d ms the window never admits too many and never refuses falsely",
  async (step) => {
    const key = await stage.givenKey({ rate_limit: LIMIT });
    const admitted: number[] = [];
    let latest = 0;
    for (let at = 0; at < 40; at++) {
      if (at === 15) stage.clock.nowMs += step;
      if (at === 25) stage.clock.nowMs -= step;
      stage.clock.nowMs += 7 * SECOND;
      const clock = Math.max(stage.clock.nowMs, latest);
      const counted = admitted.filter((stamp) => stamp > clock - MINUTE).length;
      const { outcome } = await admit(key);
      expect(outcome, `request ${at}, ${counted} in the last 60 s`).toBe(
        counted < LIMIT ? "admitted" : "rate_limited",
      );
      if (outcome !== "admitted") continue;
      latest = clock;
      admitted.push(clock);
    }
    expect(admitted.length).toBeGreaterThan(LIMIT);
  },
);

test.each([-SECOND, -61 * SECOND, -HOUR, -13 * HOUR])(
  "after a step of %d ms retry and reset still tell the truth",
  async (step) => {
    const key = await stage.givenKey({ rate_limit: 1 });
    await admit(key);
    stage.clock.nowMs += step;
    const refused = await admit(key);
    if (refused.outcome !== "rate_limited") throw new Error(refused.outcome);
    expect(refused.retryAfterMs).toBe(MINUTE - step);
    expect(refused.state.resetAtMs).toBe(stage.clock.nowMs + refused.retryAfterMs);
    stage.clock.nowMs += refused.retryAfterMs - 1;
    expect((await admit(key)).outcome).toBe("rate_limited");
    stage.clock.nowMs += 1;
    expect((await admit(key)).outcome).toBe("admitted");
  },
);

test("the day ends at midnight UTC, to the ms", async () => {
  const key = await stage.givenKey({ daily_limit: 1 });
  await admit(key);
  const midnight = NOON_MS + 12 * HOUR;
  stage.clock.nowMs = midnight - 1;
  expect(await admit(key)).toMatchObject({ outcome: "daily_limited", retryAfterMs: 1 });
  stage.clock.nowMs = midnight;
  expect((await admit(key)).outcome).toBe("admitted");
});

test.each([SECOND, 61 * SECOND, HOUR])(
  "a step back of %d ms over midnight opens no day anew",
  async (step) => {
    const key = await stage.givenKey({ daily_limit: 2 });
    stage.clock.nowMs = NOON_MS + 12 * HOUR;
    expect([(await admit(key)).outcome, (await admit(key)).outcome]).toEqual(["admitted", "admitted"]);
    stage.clock.nowMs -= step;
    expect(await admit(key)).toMatchObject({ outcome: "daily_limited", retryAfterMs: DAY + step });
    stage.clock.nowMs += step;
    expect((await admit(key)).outcome).toBe("daily_limited");
    stage.clock.nowMs += DAY;
    expect((await admit(key)).outcome).toBe("admitted");
  },
);

test("an expired key stays expired when the clock steps back behind an admission", async () => {
  const key = await stage.givenKey({ expiresAtMs: NOON_MS + HOUR });
  stage.clock.nowMs += HOUR - 1;
  await admit(key);
  stage.clock.nowMs += 1;
  expect((await admit(key)).outcome).toBe("unknown_key");
});

test("with an empty window reset is now, even when the key's clock is ahead", async () => {
  const key = await stage.givenKey();
  const { generation } = await admit(key);
  stage.clock.nowMs -= HOUR;
  await stage.void(generation, "unsent");
  const { state } = await stage.store.inspect(key, stage.tiers);
  expect(state).toMatchObject({ resetAtMs: stage.clock.nowMs, remaining: state.limit });
});

test("a hold is not ended early by a clock that steps back, and a claim waits with it", async () => {
  const key = await stage.givenKey();
  const { generation } = await admit(key);
  stage.clock.nowMs -= HOUR;
  expect(await stage.void(generation, "due")).toBe("not_due");
  expect((await stage.sweeps.lease("holds", stage.partition, 10)).requests).toEqual([]);
});

// The sweeper comes to it once time has caught up: docs/operations/redis.md.
test("a task that waits for the sweeper when the clock steps back is ended by a poll", async () => {
  const key = await stage.givenKey();
  const { generation } = await admit(key);
  await stage.bind(generation);
  stage.clock.nowMs += 10 * MINUTE;
  const leased = async () => (await stage.sweeps.lease("polls", stage.partition, 10)).requests.length;
  expect(await leased()).toBe(1);
  stage.clock.nowMs -= DAY;
  expect(await leased()).toBe(0);
  await stage.observe(generation, "completed");
  expect(await stage.account(key)).toMatchObject({ state: { active: 0 } });
});

// A record that was collected while the clock was ahead took the proof of its charge with it: the BIND was charged again.
test.each([
  ["completed", 90],
  ["failed", 100],
] as const)(
  "a clock ahead beyond the retention charges no task twice that has %s",
  async (status, balance) => {
    const key = await stage.givenKey({ credits: 100 });
    const { generation, inJournal } = await givenLostReply(key);
    await stage.observe(generation, status);
    expect(await collectAhead()).toBe(1);
    const before = await stage.everything();
    expect(await stage.settle(inJournal)).toBe("forgotten");
    expect(await stage.everything()).toEqual(before);
    expect(await stage.account(key)).toMatchObject({ balance, state: { active: 0 } });
  },
);

test("a request that was admitted while the clock was ahead is charged once, however long its journal waits", async () => {
  const key = await stage.givenKey({ credits: 100 });
  stage.clock.nowMs += AHEAD;
  const { generation, inJournal } = await givenLostReply(key);
  stage.clock.nowMs -= AHEAD;
  await stage.observe(generation, "completed");
  stage.clock.nowMs += RETENTION;
  expect((await stage.sweeps.collect(stage.partition, RETENTION, 10)).collected).toBe(1);
  expect(await stage.settle(inJournal)).toBe("forgotten");
  expect(await stage.account(key)).toMatchObject({ balance: 90 });
});

test("one Idempotency-Key is charged once, also when both of its requests were collected ahead of time", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const idempotency = { digest: randomId("digest"), fingerprint: "f" };
  const first = stage.request(key, { retentionMs: RETENTION, idempotency });
  await stage.admit(first);
  const { inJournal } = await binding(first);
  stage.clock.nowMs += HOLD_MS;
  expect(await stage.void(first, "due")).toBe("void");
  const { generation: retry } = await givenLostReply(key, { idempotency });
  await stage.observe(retry, "completed");
  expect(await collectAhead()).toBe(2);
  await stage.redis.del(idempotencyName(key.partition, idempotency.digest));
  expect(await stage.settle(inJournal)).toBe("forgotten");
  expect(await stage.account(key)).toMatchObject({ balance: 90 });
});

/** Moves the clock, and lets the record of an Idempotency-Key live no longer than Redis would. */
async function passTime(byMs: number, record: string): Promise<void> {
  stage.clock.nowMs += byMs;
  const lifetimeMs = await stage.redis.pttl(record);
  if (lifetimeMs < 0) return;
  if (lifetimeMs <= byMs) await stage.redis.del(record);
  else await stage.redis.pexpire(record, lifetimeMs - byMs);
}

/** A request with an Idempotency-Key whose hold is void, and whose BIND waits in a journal; and how to repeat it. */
async function givenUnknown(reason: "due" | "released" = "due") {
  const key = await stage.givenKey({ credits: 100 });
  const idempotency = { digest: randomId("digest"), fingerprint: "f" };
  const record = idempotencyName(key.partition, idempotency.digest);
  async function unknown() {
    const generation = stage.request(key, { retentionMs: RETENTION, idempotency });
    expect((await stage.admit(generation)).outcome).toBe("admitted");
    const { inJournal } = await binding(generation);
    if (reason === "due") await passTime(HOLD_MS, record);
    expect(await stage.void(generation, reason)).toBe("void");
    return { generation, inJournal };
  }
  const charged = () => givenLostReply(key, { idempotency });
  return { ...(await unknown()), key, record, unknown, charged };
}

// A clock that was ahead by more than the retention and is back before COLLECT ran: only the key's record is gone.
test.each(["due", "released"] as const)(
  "one Idempotency-Key is charged once: its record has expired early, and a BIND comes of a request that was void (%s)",
  async (reason) => {
    const { key, generation, inJournal, record, charged } = await givenUnknown(reason);
    await charged();
    await passTime(AHEAD, record);
    expect(await stage.redis.exists(record)).toBe(0);
    stage.clock.nowMs -= AHEAD;
    expect(await stage.settle(inJournal)).toBe("uncollected");
    expect(await stage.settle(inJournal), "sent again").toBe("uncollected");
    expect(await stage.observe(generation, "failed")).toMatchObject({ outcome: "finished", refunded: 0 });
    expect(await stage.account(key)).toMatchObject({ balance: 90, totalUsed: 10, state: { active: 1 } });
  },
);

test("nor is it charged twice if a later repeat has left a record of its own since", async () => {
  const { key, inJournal, record, charged, unknown } = await givenUnknown();
  await charged();
  await passTime(AHEAD, record);
  stage.clock.nowMs -= AHEAD;
  const later = await unknown();
  expect(await stage.settle(inJournal)).toBe("uncollected");
  expect(await stage.settle(later.inJournal)).toBe("uncollected");
  expect(await stage.account(key)).toMatchObject({ balance: 90 });
});

test("a BIND is charged days later if no repeat was, so its record lives until no BIND may come", async () => {
  const { key, inJournal, record } = await givenUnknown();
  await passTime(RETENTION / 2, record);
  expect(await stage.redis.exists(record)).toBe(1);
  expect(await stage.settle(inJournal)).toBe("late");
  expect(await stage.account(key)).toMatchObject({ balance: 90 });
});

// No step of the clock is needed: the record of the key once lived for a day only, and journals may wait for three.
test("two requests of one Idempotency-Key that wait in two journals are charged once, a day apart", async () => {
  const { key, inJournal, record, unknown } = await givenUnknown();
  const second = await unknown();
  await passTime(DAY + HOUR, record);
  expect(await stage.settle(inJournal)).toBe("late");
  await passTime(DAY + HOUR, record);
  expect(await stage.settle(second.inJournal)).toBe("uncollected");
  expect(await stage.account(key)).toMatchObject({ balance: 90 });
});

test("an Idempotency-Key does not expire while its request is held, however far the clock is ahead", async () => {
  const { key, record, charged } = await givenUnknown();
  const idempotency = { digest: record.split(":").at(-1)!, fingerprint: "f" };
  const held = stage.request(key, { retentionMs: RETENTION, idempotency });
  await stage.admit(held);
  await passTime(AHEAD, record);
  const repeat = await stage.admit(stage.request(key, { idempotency }));
  expect(repeat).toMatchObject({ outcome: "idempotency_in_progress" });
  expect(await stage.void(held, "refused")).toBe("void");
  await charged();
  expect(await stage.redis.pttl(record)).toBeLessThanOrEqual(DAY);
});

test("a hold whose Idempotency-Key has expired is not charged beside its repeat", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const idempotency = { digest: randomId("digest"), fingerprint: "f" };
  const record = idempotencyName(key.partition, idempotency.digest);
  const early = stage.request(key, { retentionMs: RETENTION, idempotency });
  await stage.admit(early);
  const { inJournal } = await binding(early);
  await stage.redis.del(record);
  stage.clock.nowMs += DAY;
  expect(await stage.void(early, "due")).toBe("void");
  await givenLostReply(key, { idempotency });
  await passTime(DAY + HOUR, record);
  expect(await stage.settle(inJournal)).toBe("uncollected");
  expect(await stage.account(key)).toMatchObject({ balance: 90 });
});

// A store that comes back older has lost admissions and charges alike: what gateways still hold is charged, once.
test("what an older store lacks is charged, though it has collected others, and then not once more", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const early = await givenLostReply(key);
  await stage.observe(early.generation, "completed");
  stage.clock.nowMs += RETENTION;
  expect((await stage.sweeps.collect(stage.partition, RETENTION, 10)).collected).toBe(1);

  const lost = stage.request(key, { retentionMs: RETENTION, admittedAtMs: stage.clock.nowMs });
  const { inJournal } = await binding(lost);
  expect(await stage.settle(inJournal)).toBe("late");
  expect(await stage.settle(inJournal)).toBe("bound");
  await stage.observe(lost, "completed");
  expect(await collectAhead()).toBe(1);
  expect(await stage.settle(inJournal)).toBe("forgotten");
  expect(await stage.account(key)).toMatchObject({ balance: 80 });
});

test("an earlier request that is collected after a later one takes nothing back of what is known of that", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const early = await givenLostReply(key);
  stage.clock.nowMs += HOUR;
  const later = await givenLostReply(key);
  await stage.observe(later.generation, "completed");
  expect(await collectAhead()).toBe(1);
  await stage.observe(early.generation, "completed");
  expect(await collectAhead()).toBe(1);
  for (const { inJournal } of [early, later]) expect(await stage.settle(inJournal)).toBe("forgotten");
  expect(await stage.account(key)).toMatchObject({ balance: 80 });
});

test("what one account has forgotten keeps no other account's BIND from its charge", async () => {
  const [key, other] = [await stage.givenKey(), await stage.givenKey({ credits: 100 })];
  const { generation } = await givenLostReply(key);
  await stage.observe(generation, "completed");
  const { inJournal } = await binding(stage.request(other, { admittedAtMs: stage.clock.nowMs }));
  expect(await collectAhead()).toBe(1);
  expect(await stage.settle(inJournal)).toBe("late");
  expect(await stage.account(other)).toMatchObject({ balance: 90 });
});
