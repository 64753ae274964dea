import { afterAll, beforeAll, expect, test } from "vitest";
import { createStage, openConnection, type Stage, type TestConnection } from "../support/store.ts";

let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  connection = await openConnection();
  stage = createStage(connection);
});
afterAll(() => connection.close());

/** The samples of one metric, such as `{tier="standard",limit="slots"} 1`. */
async function samples(name: string): Promise<string[]> {
  const page = await connection.metrics.registry.getSingleMetricAsString(name);
  const lines = page.split("\n").filter((line) => line.startsWith(name));
  return lines.map((line) => line.slice(name.length).trim());
}

test("admissions that leave less than a fifth of the window, or take the last slot, are counted by tier", async () => {
  const wide = await stage.givenKey({ rate_limit: 10, max_concurrent: 11, tier: "enterprise" });
  const narrow = await stage.givenKey({ rate_limit: 100, max_concurrent: 2, tier: "gone" });
  // Of ten, the ninth leaves one and the tenth none; the eleventh is refused.
  for (let nth = 1; nth <= 11; nth++) await stage.admit(stage.request(wide));
  for (let nth = 1; nth <= 3; nth++) await stage.admit(stage.request(narrow));
  const expected = [
    '{tier="enterprise",limit="window"} 2',
    '{tier="enterprise",limit="slots"} 0',
    '{tier="other",limit="window"} 0',
    '{tier="other",limit="slots"} 1',
  ];
  expect(await samples("tollgate_admissions_near_limit_total")).toEqual(expected);
  expect(await samples("tollgate_admissions_near_limit_total")).toEqual(expected);
});

test("what a task costs that its account could not pay any more is counted as uncollected", async () => {
  const key = await stage.givenKey({ credits: 25 });
  const late = stage.request(key, { price: 20 });
  await stage.admit(late);
  await stage.void(late, "refused");
  await stage.givenTask(stage.request(key, { price: 10 }));
  expect(await stage.bind(late)).toBe("uncollected");
  expect(await samples("tollgate_credits_uncollected_total")).toEqual(["20"]);
  expect(await samples("tollgate_credits_consumed_total")).toEqual(["10"]);
  expect(await samples("tollgate_settlements_total")).toContain('{outcome="uncollected"} 1');
});

test("each end of a task is counted by its kind, and refunded credits with it, once", async () => {
  const key = await stage.givenKey({ credits: 100 });
  for (const status of ["completed", "failed", "expired"] as const) {
    const task = stage.request(key, { price: 10 });
    await stage.givenTask(task);
    await stage.observe(task, status);
    await stage.observe(task, status);
  }
  const after = await samples("tollgate_settlements_total");
  const counts = ['{outcome="finished"} 2', '{outcome="expired"} 1', '{outcome="refunded"} 2'];
  expect(after).toEqual(expect.arrayContaining(counts));
  expect(await samples("tollgate_credits_refunded_total")).toEqual(["20"]);
});
