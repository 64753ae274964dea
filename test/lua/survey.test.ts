import { afterAll, beforeAll, expect, test } from "vitest";
import { createRedisFigures } from "../../src/jobs/background-work.ts";
import { createSurvey } from "../../src/jobs/regular-check.ts";
import { createSurveys, type Surveys } from "../../src/operations/store/survey.ts";
import { dueFrom, partitionNames, requestName } from "../../src/records/names.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import type { Run } from "../../src/scripts/script-definition.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import {
  createStage,
  onOneServer,
  openConnection,
  type Stage,
  type TestConnection,
  times,
} from "../support/store.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { changeRequest } from "../support/stored-requests.ts";

/** A survey is of a whole store: one that no other test writes to. */
let redis: TestRedis;
let connection: TestConnection;
let surveys: Surveys;
beforeAll(async () => {
  redis = await givenRedis();
  connection = await openConnection(redis.url);
  surveys = createSurveys(connection);
});
afterAll(async () => {
  await connection.close();
  await redis.stop();
});

const MINUTE_MS = 60_000;

/** Makes an open request older than it is. */
async function aged(stage: Stage, { requestId, key }: Generation, field: string, ageMs: number) {
  const name = requestName(stage.partition, requestId);
  await changeRequest(redis.client, name, { [field]: Date.now() - ageMs });
  return { name, due: partitionNames(key.partition).due };
}

test("holds and tasks of all partitions are counted by age, ended ones are not, and one gateway counts for all", async () => {
  const empty = await surveys.take();
  expect(empty).toMatchObject({ open: { held: [0, 0, 0, 0], bound: [0, 0, 0, 0] }, overdueMs: 0 });

  const first = createStage(connection, { clock: "redis", partition: 3 });
  const last = createStage(connection, { clock: "redis", partition: 63 });
  const key = await first.givenKey();
  const held = first.request(key);
  await first.admit(held);
  const stuck = first.request(key);
  await first.admit(stuck);
  await aged(first, stuck, "admitted_at", 7 * MINUTE_MS);
  await aged(first, stuck, "due_at", 5 * MINUTE_MS);
  // With a callBackUrl, a hold of an unknown outcome lasts for hours.
  const lasting = first.request(key, { holdMs: 120 * MINUTE_MS });
  await first.admit(lasting);
  await aged(first, lasting, "admitted_at", 60 * MINUTE_MS);
  const ended = first.request(key);
  await first.givenTask(ended);
  await first.observe(ended, "completed");
  const other = await last.givenKey();
  for (const minutes of [2, 4, 45]) {
    const task = last.request(other);
    await last.givenTask(task);
    const { due } = await aged(last, task, "bound_at", minutes * MINUTE_MS);
    if (minutes === 45) await redis.client.zadd(due, dueFrom("polls") + Date.now() - 90_000, task.requestId);
  }

  const survey = await surveys.take();
  expect(survey.open).toEqual({ held: [1, 0, 1, 1], bound: [0, 2, 0, 1] });
  expect(Math.round(survey.oldestMs.held / MINUTE_MS)).toBe(60);
  expect(Math.round(survey.oldestMs.bound / MINUTE_MS)).toBe(45);
  expect(Math.round(survey.holdOverdueMs / MINUTE_MS)).toBe(5);
  expect(Math.round(survey.overdueMs / 10_000)).toBe(9);
});

test("lists without an entry are not looked into", async () => {
  const stage = createStage(connection, { clock: "redis", partition: 40 });
  await stage.admit(stage.request(await stage.givenKey()));
  const lookedInto: string[] = [];
  const run: Run = (script, call) => {
    lookedInto.push(script.keys(call)[0]!);
    return connection.run(script, call);
  };
  const watched = createSurveys(onOneServer(connection, { run }));
  await watched.take();
  expect(lookedInto).toContain(partitionNames(40).due);
  for (const list of lookedInto) expect(await redis.client.zcard(list), list).toBeGreaterThan(0);
});

test("of more open requests than are looked at, a part stands for all", async () => {
  const stage = createStage(connection, { clock: "redis", partition: 20 });
  const request = stage.request(await stage.givenKey());
  const before = await surveys.take();
  await stage.admit(request);
  const { due } = partitionNames(20);
  const [text, score] = [
    await redis.client.get(requestName(20, request.requestId)),
    await redis.client.zscore(due, request.requestId),
  ];
  const others = times(6999, (nth) => `${request.requestId}_${nth}`);
  await redis.client.mset(others.flatMap((id) => [requestName(20, id), text!]));
  await redis.client.zadd(due, ...others.flatMap((id) => [score!, id]));
  let lookedAt = 0;
  const run: Run = async (script, call) => {
    const reply = await connection.run(script, call);
    lookedAt += (reply as { seen: number }).seen;
    return reply;
  };
  const { open } = await createSurveys(onOneServer(connection, { run })).take();
  expect(Math.round(open.held[0]! - before.open.held[0]!)).toBe(7000);
  expect(lookedAt).toBeLessThan(7000 / 3);
  await redis.client.del(due, ...others.map((id) => requestName(20, id)));
});

test("what one gateway counted, all report; without news they report nothing old", async () => {
  const metrics = connection.metrics;
  const log = createLogger("silent");
  const counting = createSurvey({ surveys, sweepIntervalMs: () => 1, metrics, log });
  await counting.look();
  expect(await surveys.lease(10_000)).toBe(false);
  const here = await metrics.registry.getSingleMetricAsString("tollgate_open_requests");

  const elsewhere = await openConnection(redis.url);
  const page = () => elsewhere.metrics.registry.getSingleMetricAsString("tollgate_open_requests");
  try {
    const theirs = createSurveys(elsewhere);
    const showing = createSurvey({
      surveys: theirs,
      sweepIntervalMs: () => 1,
      metrics: elsewhere.metrics,
      log,
    });
    expect(await page()).not.toContain("tollgate_open_requests{");
    await showing.look();
    expect(await page()).toBe(here);
    expect(here).toContain('tollgate_open_requests{state="bound",age=">=30m"} 1');
    await redis.client.del("tg:survey");
    await showing.look();
    expect(await page()).not.toContain("tollgate_open_requests{");

    await theirs.publishLedger({ atMs: 1_900_000_000_000, violations: 2, credits: LEDGER });
    await counting.look();
    expect(await metrics.registry.metrics()).toContain("tollgate_ledger_violations 2");
    expect(await metrics.registry.metrics()).toContain('tollgate_ledger_credits{type="recharged"} 70');
  } finally {
    await elsewhere.close();
  }
});

/** A figure as it is on the page; undefined if it is not. */
async function shown(name: string): Promise<string | undefined> {
  const page = await connection.metrics.registry.metrics();
  return new RegExp(`^${name.replaceAll(/[{}]/g, "\\$&")} (.*)$`, "m").exec(page)?.[1];
}

const watching = (watched: Surveys) =>
  createSurvey({
    surveys: watched,
    sweepIntervalMs: () => 1,
    metrics: connection.metrics,
    log: createLogger("silent"),
  });

// Guarantee: a full Redis does not hide that tasks are stuck.
test("a full store is counted, by each gateway for itself", async () => {
  const survey = watching(surveys);
  await redis.client.del("tg:survey-lease", "tg:survey");
  connection.metrics.openRequests.reset();
  await redis.client.config("SET", "maxmemory", "1");
  try {
    await survey.look();
  } finally {
    await redis.client.config("SET", "maxmemory", "0");
  }
  expect(await shown('tollgate_open_requests{state="bound",age=">=30m"}')).toBe("1");
  expect(Number(await shown("tollgate_store_survey_age_seconds"))).toBeLessThan(60);
});

test("where the primary that has the turns is away, the others are counted all the same", async () => {
  const away = () => Promise.reject(new Error("its primary is away"));
  const survey = watching({ ...surveys, lease: away, publish: away, latest: away });
  connection.metrics.openRequests.reset();
  await survey.look();
  expect(await shown('tollgate_open_requests{state="bound",age=">=30m"}')).toBe("1");
});

// Guarantee: the age of the figures is that of the figures, whatever a clock says.
test("a survey that stays the same grows old, and a new one is new though its clock was set back", async () => {
  let atMs = Date.now();
  const latest = async () => ({ ...(await surveys.take()), atMs });
  const survey = watching({ ...surveys, lease: async () => false, latest });
  const age = async () => Number(await shown("tollgate_store_survey_age_seconds"));
  const startedMs = performance.now();
  await survey.look();
  const first = await age();
  await survey.look();
  const second = await age();
  expect(second).toBeGreaterThan(first);
  expect(second).toBeLessThanOrEqual((performance.now() - startedMs) / 1000);
  atMs -= 3_600_000;
  await survey.look();
  expect(await age()).toBeLessThan(second);
});

test("what doctor warns of is a figure for each primary, and goes with it", async () => {
  const { metrics } = connection;
  let primaries = connection.primaries();
  const figures = createRedisFigures({
    connection: { primaries: () => primaries },
    replicasWanted: () => 2,
    metrics,
    log: createLogger("silent"),
  });
  await redis.client.config("SET", "maxmemory", "1gb");
  try {
    await figures.look();
  } finally {
    await redis.client.config("SET", "maxmemory", "0");
  }
  const labels = '{primary="redis"}';
  expect(await shown(`tollgate_redis_memory_max_bytes${labels}`)).toBe(String(2 ** 30));
  expect(Number(await shown(`tollgate_redis_memory_used_bytes${labels}`))).toBeGreaterThan(100_000);
  expect(Math.abs(Number(await shown(`tollgate_redis_clock_ahead_seconds${labels}`)))).toBeLessThan(60);
  expect(await shown(`tollgate_redis_replicas_online${labels}`)).toBe("0");
  expect(await shown("tollgate_redis_replicas_wanted")).toBe("2");
  const persistent = async (value: string) => {
    await redis.client.config("SET", "appendonly", value);
    await figures.look();
    return shown(`tollgate_redis_persistent${labels}`);
  };
  expect([await persistent("yes"), await persistent("no")]).toEqual(["1", "0"]);
  primaries = [];
  await figures.look();
  expect(await shown(`tollgate_redis_persistent${labels}`)).toBeUndefined();
});

const LEDGER = { recharged: 70, consumed: 30, refunded: 10 };
