import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { consumed, expectSound, makeDue, readLedger } from "../support/audit.ts";
import {
  expectStatus,
  givenGateway,
  limitsOf,
  type Reply,
  type TestGateway,
  until,
} from "../support/gateway.ts";
import { generate, givenStage, ready, type Stage, sent } from "../support/store-stage.ts";

/** Of the gateway that meets an upstream without an answer; the others wait as long as it takes. */
const IMPATIENT = { connectTimeoutMs: 1000, headersTimeoutMs: 300, totalTimeoutMs: 600 };
const TASKS = { sweepIntervalMs: 20 };
/** Longer than any test here: the store is never away. */
const STORE = { commandTimeoutMs: 60_000 };

let stage: Stage;
let impatient: TestGateway;
beforeAll(async () => {
  stage = await givenStage({ config: { store: STORE, tasks: TASKS } });
  impatient = await givenGateway({
    redisUrl: stage.redis.url,
    generator: stage.gateway.generator,
    config: { store: STORE, upstream: IMPATIENT },
  });
  await ready(impatient);
});
afterAll(async () => {
  await impatient.stop();
  await stage.stop();
});
beforeEach(() => {
  stage.gateway.generator.requests.length = 0;
});

const UNCLEAR = /no clear answer; nothing is charged unless the task is confirmed/;
const TIMED_OUT = /no answer in time; nothing is charged unless the task is confirmed/;

const OUTCOMES: [directive: string, status: number, text: RegExp][] = [
  ["hang", 504, TIMED_OUT],
  ["drip drip-ms=100", 504, TIMED_OUT],
  ["reset", 502, UNCLEAR],
  ["truncate", 502, UNCLEAR],
  ["garbage", 502, UNCLEAR],
  ["status=500", 502, UNCLEAR],
  ["status=502", 502, UNCLEAR],
  ["status=504", 502, UNCLEAR],
  ["no-task-id", 502, UNCLEAR],
  ["task-id=not/a/task", 502, UNCLEAR],
];

function expectUnknown(reply: Reply, status: number, text: RegExp): void {
  expect(reply).toMatchObject({ status });
  expect(reply.body).toMatchObject({ code: status, error: expect.stringMatching(text) });
  expect(reply.headers.get("x-should-retry"), "a retry may be a second task").toBe("false");
  expect(limitsOf(reply)).toMatchObject({ active: 1, remaining: 999 });
}

const balanceOf = async ({ key }: IssuedKey): Promise<number> =>
  (await stage.gateway.request("GET", "/api/v1/credits", { key })).body.data.balance;

/** The sweeper has voided the hold of a key's only request. */
async function expectVoided(key: IssuedKey): Promise<void> {
  await until(async () => (await readLedger(stage.redis.client, key)).held === 0, "the hold to be voided");
  const ledger = await readLedger(stage.redis.client, key);
  expectSound(ledger);
  expect(ledger).toMatchObject({ balance: 1000, totalUsed: 0, slots: [], dayCount: 0, windowEntries: 1 });
  expect(consumed(ledger)).toEqual([]);
  expect(await balanceOf(key)).toBe(1000);
}

describe("an outcome nobody knows keeps its hold until the due time, and is never charged", () => {
  test.concurrent.each(OUTCOMES)("%s", async (directive, status, text) => {
    const key = await stage.givenKey();
    const gateway = status === 504 ? impatient : stage.gateway;
    expectUnknown(await generate(gateway, key, `[sandbox: ${directive}]`), status, text);
    expect(await readLedger(stage.redis.client, key)).toMatchObject({ held: 10, balance: 1000 });
    expect(await balanceOf(key), "what is held cannot be spent").toBe(990);
    expect(await makeDue(stage.redis.client, key.accountId)).toBe(1);
    await expectVoided(key);
  });
});

// Guarantee: whether a generation was charged, and what it costs, is clear from its line in the log.
describe("the line of a generation in the log", () => {
  const lineOf = (of: Stage, key: IssuedKey): Record<string, unknown> =>
    of.gateway.logs
      .map((line) => JSON.parse(line))
      .findLast(({ key_id: id, route }) => id === key.keyId && route === "/api/v1/gen2/text-to-video");

  test("has its price where it is charged, where its outcome is unknown, and where it is refused", async () => {
    const key = await stage.givenKey({ credits: 15 });
    await generate(stage.gateway, key, "[sandbox: reset]");
    expect(lineOf(stage, key)).toMatchObject({ outcome: "upstream_unclear", price: 10 });
    await generate(stage.gateway, key);
    expect(lineOf(stage, key)).toMatchObject({ outcome: "insufficient_credits", price: 10 });
    const other = await stage.givenKey();
    await generate(stage.gateway, other);
    expect(lineOf(stage, other)).toMatchObject({ outcome: "ok", price: 10 });
  });

  test("says so when the hold was void before the task came and the balance no longer covers it", async () => {
    const slow = await givenStage({ config: { tasks: TASKS } });
    try {
      const key = await slow.givenKey({ credits: 10 });
      const late = generate(slow.gateway, key, "[sandbox: delay=3s]");
      await until(() => sent(slow.gateway).length === 1, "the request to reach the upstream");
      await makeDue(slow.redis.client, key.accountId);
      await until(async () => (await readLedger(slow.redis.client, key)).held === 0, "the hold to be voided");
      expectStatus(await generate(slow.gateway, key), 200);
      expectStatus(await late, 200);
      expect(lineOf(slow, key)).toMatchObject({ outcome: "uncollected", price: 10 });
    } finally {
      await slow.stop();
    }
  });
});

// A 504 was once hidden behind "in progress" for as long as its hold lasted.
test.each([
  ["hang", /got no answer in time from the video generation service/],
  ["reset", /got no clear answer from the video generation service/],
])(
  "a repeat is told that the first request's outcome is unknown, and until when: %s",
  async (directive, text) => {
    const key = await stage.givenKey();
    const twin = await givenStage({ redis: stage.redis, config: { store: STORE, tasks: TASKS } });
    const gateway = directive === "hang" ? impatient : stage.gateway;
    try {
      const repeat = (on: TestGateway) =>
        generate(on, key, `[sandbox: ${directive}]`, { "idempotency-key": directive });
      const first = await repeat(gateway);
      expect([502, 504]).toContain(first.status);
      expect(first.headers.get("x-should-retry"), "its Idempotency-Key makes a retry safe").toBeNull();
      await makeDue(stage.redis.client, key.accountId, { due_at: String(Date.now() + 60_000) });
      for (const on of [gateway, twin.gateway]) {
        const { status, body, headers } = await repeat(on);
        expect({ status, code: body.code }).toEqual({ status: 409, code: 409 });
        expect(body.error).toMatch(text);
        const [, knownAt = ""] = /is known at (\S+) at the latest$/.exec(body.error) ?? [];
        const seconds = (Date.parse(knownAt) - Date.now()) / 1000;
        expect(Math.abs(body.retryAfter - seconds)).toBeLessThan(2);
        expect(headers.get("retry-after")).toBe(String(body.retryAfter));
      }
      expect(sent(stage.gateway).length + sent(twin.gateway).length).toBe(1);
      expect(await readLedger(stage.redis.client, key)).toMatchObject({ held: 10, totalRequests: 1 });
    } finally {
      await twin.stop();
    }
  },
);

test("no POST of an unknown outcome is sent twice", async () => {
  for (const directive of ["reset", "status=500", "garbage"]) {
    await generate(stage.gateway, await stage.givenKey(), `[sandbox: ${directive}]`);
  }
  expect(sent(stage.gateway)).toHaveLength(3);
});

test("a hold that is not due yet outlives the sweeps around it", async () => {
  const [early, late] = [await stage.givenKey(), await stage.givenKey()];
  for (const key of [early, late]) await generate(stage.gateway, key, "[sandbox: reset]");
  // The score alone is not the due time: VOID looks at the request itself.
  await makeDue(stage.redis.client, early.accountId, { due_at: String(Date.now() + 60_000) });
  await makeDue(stage.redis.client, late.accountId);
  await expectVoided(late);
  await until(async () => {
    const lines = await stage.gateway.metric("tollgate_sweeper_items_total");
    return lines.some((line) => line.includes('outcome="not_due"'));
  }, "the sweeper to have looked at it");
  expect(await readLedger(stage.redis.client, early)).toMatchObject({ held: 10 });
});

test("a task id that is another request's is never charged to the wrong one", async () => {
  const [owner, other] = [await stage.givenKey(), await stage.givenKey()];
  const first = await generate(stage.gateway, owner);
  const taskId: string = first.body.data.task_id;
  for (const key of [other, owner]) {
    const reply = await generate(stage.gateway, key, `[sandbox: task-id=${taskId}]`);
    expectStatus(reply, 502);
    expect(reply.body.error).toMatch(UNCLEAR);
  }
  const stolen = await stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key: other.key });
  expectStatus(stolen, 404, "another account's task");
  await makeDue(stage.redis.client, other.accountId);
  await expectVoided(other);
  const ledger = await readLedger(stage.redis.client, owner);
  expectSound(ledger);
  expect(consumed(ledger).map((entry) => entry.taskId)).toEqual([taskId]);
  expect(ledger).toMatchObject({ held: 10, totalUsed: 10 });
});

test("a late BIND finds its hold voided and charges the task once, with its slot", async () => {
  const key = await stage.givenKey();
  const pending = generate(stage.gateway, key, "[sandbox: delay=3s]");
  await until(() => sent(stage.gateway).length === 1, "the request to reach the upstream");
  await makeDue(stage.redis.client, key.accountId);
  await until(async () => (await readLedger(stage.redis.client, key)).held === 0, "the hold to be voided");
  expectStatus(await pending, 200);
  const ledger = await readLedger(stage.redis.client, key);
  expectSound(ledger);
  expect(ledger).toMatchObject({ balance: 990, held: 0, totalUsed: 10 });
  expect(ledger.slots).toHaveLength(1);
});

describe("an idempotent upstream is asked again under the same key", () => {
  let asking: Stage;
  beforeAll(async () => {
    const upstream = { ...IMPATIENT, headersTimeoutMs: 1500, totalTimeoutMs: 15_000, idempotencyKey: true };
    asking = await givenStage({ redis: stage.redis, config: { store: STORE, upstream, tasks: TASKS } });
  });
  afterAll(() => asking.stop());

  test.each(["reset", "truncate", "garbage", "hang"] as const)(
    "what it made before a %s is found and bound",
    async (fault) => {
      const { gateway } = asking;
      gateway.generator.requests.length = 0;
      gateway.generator.behave({ fault });
      const key = await asking.givenKey();
      const pending = generate(gateway, key);
      await until(() => sent(gateway)[0]?.taskId !== undefined, "the first try");
      // The answer of the first try is on its way already, with its fault.
      gateway.generator.behave({ fault: "none" });
      const reply = await pending;
      expectStatus(reply, 200);
      const keys = sent(gateway).map(({ headers }) => headers["idempotency-key"]);
      expect(keys).toEqual([reply.headers.get("x-request-id"), reply.headers.get("x-request-id")]);
      expect(sent(gateway).map(({ taskId }) => taskId)).toEqual(Array(2).fill(reply.body.data.task_id));
      const ledger = await readLedger(asking.redis.client, key);
      expectSound(ledger);
      expect(ledger).toMatchObject({ balance: 990, held: 0, totalRequests: 1 });
    },
  );

  test("it is asked three times at most, and then the outcome is unknown", async () => {
    const { gateway } = asking;
    gateway.generator.requests.length = 0;
    const key = await asking.givenKey();
    const reply = await generate(gateway, key, "[sandbox: reset]");
    expectStatus(reply, 502);
    expect(sent(gateway)).toHaveLength(3);
    expect(await readLedger(asking.redis.client, key)).toMatchObject({ held: 10, totalUsed: 0 });
  });
});
