import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { monthOf } from "../../src/domain/months.ts";
import type { KeyRef } from "../../src/store/names.ts";
import type { Generation } from "../../src/store/scripts/admit.ts";
import {
  createStage,
  HOLD_MS,
  openConnection,
  type Stage,
  type TestConnection,
  times,
} from "../support/store.ts";
import { LUA_FOLDER } from "./headers.ts";

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
async function givenKey(monthlyCredits: number, credits = 1000): Promise<KeyRef> {
  const key = await stage.givenKey({ credits });
  await stage.redis.hset(key.names.key, "monthly_credits", monthlyCredits);
  return key;
}

const spent = async ({ names }: KeyRef): Promise<number> =>
  Number(await stage.redis.hget(names.key, "spent"));

/** Admits one, and answers it with the outcome. */
async function admit(key: KeyRef, price = 10): Promise<{ generation: Generation; outcome: string }> {
  const generation = stage.request(key, { price });
  return { generation, outcome: (await stage.admit(generation)).outcome };
}

test("the month of a day is the same in Lua as in TypeScript, over 500 years", async () => {
  const include = (name: string): string => readFileSync(join(LUA_FOLDER, `include/${name}.lua`), "utf8");
  const days = times(182_621, (day) => day);
  const source = `${include("clock")}\n${include("month")}
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
  await stage.redis.hset(key.names.key, "max_concurrent", 1);
  expect(await admit(key, 6)).toMatchObject({ outcome: "concurrency_limited" });
  await stage.redis.hset(key.names.key, "max_concurrent", 9);
  const before = await stage.everything();
  const refused = await stage.admit(stage.request(key, { price: 6 }));
  expect(refused).toMatchObject({ outcome: "spend_capped", cap: 25, spent: 20, state: { active: 1 } });
  expect(await stage.everything()).toEqual(before);
  expect(await admit(key, 5)).toMatchObject({ outcome: "admitted" });
  expect(await admit(key, 1)).toMatchObject({ outcome: "spend_capped" });
  await stage.redis.hset(key.names.key, "monthly_credits", 100);
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
  await stage.redis.hset(key.names.key, "monthly_credits", 35);
  expect((await admit(key)).outcome).toBe("spend_capped");
  expect((await admit(key, 5)).outcome).toBe("admitted");
});
