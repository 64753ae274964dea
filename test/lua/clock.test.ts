import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Connection } from "../../src/store/connection.ts";
import type { KeyRef } from "../../src/store/names.ts";
import { createStage, NOON_MS, openConnection, type Stage } from "../support/store.ts";

// The store's clock may step. A key's own clock is the latest the store has told it at an admission.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const LIMIT = 3;

let connection: Connection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
});
afterAll(() => connection.close());
beforeEach(() => {
  stage = createStage(connection);
});

const admit = async (key: KeyRef) => {
  const generation = stage.request(key);
  return { ...(await stage.admit(generation)), generation };
};

const steps = [-SECOND, -61 * SECOND, -HOUR, -13 * HOUR, SECOND, 61 * SECOND, HOUR, 13 * HOUR];

test.each(steps)(
  "over a step of %d ms the window never admits too many and never refuses falsely",
  async (step) => {
    const key = await stage.givenKey({ rateLimit: LIMIT });
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
    const key = await stage.givenKey({ rateLimit: 1 });
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
  const key = await stage.givenKey({ dailyLimit: 1 });
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
    const key = await stage.givenKey({ dailyLimit: 2 });
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
  expect(state).toMatchObject({ resetAtMs: stage.clock.nowMs, remaining: state.rateLimit });
});

test("a hold is not ended early by a clock that steps back, and a claim waits with it", async () => {
  const key = await stage.givenKey();
  const { generation } = await admit(key);
  stage.clock.nowMs -= HOUR;
  expect(await stage.void(generation, "due")).toBe("not_due");
  expect((await stage.sweeps.lease("holds", stage.partition, 10)).requests).toEqual([]);
});
