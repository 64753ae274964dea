import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { IssuedKey, KeyOptions } from "../../src/operations/keys/issue-key.ts";
import { expectSound, keyRecord, readLedger, refunded } from "../support/audit.ts";
import { givenGateway, limitsOf, type Reply, type TestGateway, until } from "../support/gateway.ts";
import { generate, givenKey, polled, sent } from "../support/store-stage.ts";
import { setKeyFields } from "../support/stored-records.ts";

const SIMULTANEOUS = 200;

let one: TestGateway;
let two: TestGateway;
beforeAll(async () => {
  one = await givenGateway();
  two = await givenGateway({ generator: one.generator });
});
afterAll(async () => {
  await two.stop();
  await one.stop();
});
beforeEach(() => {
  one.generator.reset();
  one.generator.requests.length = 0;
});

const given = (options: KeyOptions = {}): Promise<IssuedKey> =>
  givenKey(one.redis, { credits: 100_000, ...options });
const ledger = (key: IssuedKey) => readLedger(one.redis, key);
const poll = (on: TestGateway, { key }: IssuedKey, taskId: string): Promise<Reply> =>
  on.request("GET", `/api/v1/tasks/${taskId}`, { key });

const both = (key: IssuedKey, prompt?: string): Promise<Reply[]> =>
  Promise.all(Array.from({ length: SIMULTANEOUS }, (_, nth) => generate(nth % 2 ? one : two, key, prompt)));

const withCode = (replies: Reply[], code: number): number =>
  replies.filter(({ body }) => body.code === code).length;

describe(`${SIMULTANEOUS} simultaneous requests over two gateways pass exactly to the limit`, () => {
  test.each([
    ["window", { limits: { rate_limit: 37 } }, 37, 2001],
    ["day", { limits: { daily_limit: 23 } }, 23, 2003],
    ["slots", { limits: { max_concurrent: 11 } }, 11, 2002],
    ["credits", { credits: 135 }, 13, 402],
  ] as const)("%s", async (_name, options, admitted, code) => {
    const key = await given(options as KeyOptions);
    const replies = await both(key);
    expect(withCode(replies, 200)).toBe(admitted);
    expect(withCode(replies, code)).toBe(SIMULTANEOUS - admitted);
    expect(sent(one)).toHaveLength(admitted);
    const after = await ledger(key);
    expectSound(after);
    // A refused request consumes nothing at all.
    expect(after).toMatchObject({
      held: 0,
      totalUsed: admitted * 10,
      totalRequests: admitted,
      windowEntries: admitted,
      dayCount: admitted,
    });
    expect(after.slots).toHaveLength(admitted);
  });

  test("a slot freed through one is taken through the other, and only once", async () => {
    const key = await given({ limits: { max_concurrent: 1 } });
    const made = await generate(one, key, "[sandbox: duration=0]");
    expect((await generate(two, key)).body.code).toBe(2002);
    expect((await poll(one, key, made.body.data.task_id)).body.data.status).toBe("completed");
    expect(withCode(await both(key), 200)).toBe(1);
  });
});

test("both report the same numbers", async () => {
  const key = await given({ limits: { rate_limit: 20, max_concurrent: 3 } });
  await generate(one, key);
  await generate(two, key);
  const credits = await Promise.all(
    [one, two].map((gateway) => gateway.request("GET", "/api/v1/credits", { key: key.key })),
  );
  expect(credits[0]?.body).toEqual(credits[1]?.body);
  for (const reply of credits)
    expect(limitsOf(reply)).toMatchObject({ limit: 20, remaining: 18, maxConcurrent: 3, active: 2 });
});

test("a task's state is asked for once and answered by both from the shared cache", async () => {
  const key = await given();
  const { body } = await generate(one, key);
  const first = await poll(one, key, body.data.task_id);
  for (const on of [two, one, two]) expect((await poll(on, key, body.data.task_id)).body).toEqual(first.body);
  expect(polled(one)).toHaveLength(1);
});

test("a task made through one is settled through the other", async () => {
  const key = await given({ credits: 20 });
  const completed = await generate(one, key, "[sandbox: duration=0]");
  const failed = await generate(two, key, "[sandbox: duration=0 fail]");
  expect((await poll(two, key, completed.body.data.task_id)).body.data.status).toBe("completed");
  expect((await poll(one, key, failed.body.data.task_id)).body.data.status).toBe("failed");
  const after = await ledger(key);
  expectSound(after);
  expect(after).toMatchObject({ balance: 10, totalUsed: 10, slots: [] });
});

test("a failed task that both see at once is refunded once", async () => {
  const key = await given();
  const { body } = await generate(one, key, "[sandbox: duration=0 fail poll-delay=2s]");
  const taskId: string = body.data.task_id;
  const replies = Promise.all(Array.from({ length: 40 }, (_, nth) => poll(nth % 2 ? one : two, key, taskId)));
  await until(() => polled(one, taskId).length === 2, "both gateways to ask the upstream");
  for (const reply of await replies) expect(reply.body.data.status).toBe("failed");
  expect(polled(one, taskId), "each gateway asked once for all its clients").toHaveLength(2);
  const after = await ledger(key);
  expectSound(after);
  expect(refunded(after)).toHaveLength(1);
  expect(after).toMatchObject({ balance: 100_000, totalUsed: 0, slots: [] });
});

test("a stale answer through one never takes back an end seen through the other", async () => {
  const fresh = await givenGateway({ generator: one.generator, config: { tasks: { cacheMs: 0 } } });
  try {
    const key = await given();
    const { body } = await generate(one, key, "[sandbox: duration=100ms start-delay=0]");
    const taskId: string = body.data.task_id;
    one.generator.behave({ pollDelayMs: 3000 });
    const stale = poll(one, key, taskId);
    await until(() => polled(one, taskId).length === 1, "the slow question");
    one.generator.behave({ pollDelayMs: 0 });
    await until(async () => (await poll(fresh, key, taskId)).body.data.status === "completed", "the end");
    expect((await stale).body.data.status).toBe("completed");
    for (const on of [one, two, fresh])
      expect((await poll(on, key, taskId)).body.data.status).toBe("completed");
  } finally {
    await fresh.stop();
  }
});

test("a revoked key is refused by both at once", async () => {
  const key = await given();
  await Promise.all([generate(one, key), generate(two, key)]);
  await setKeyFields(one.redis, await keyRecord(one.redis, key), { revoked_at: 1 });
  for (const on of [one, two]) expect((await generate(on, key)).status).toBe(401);
});
