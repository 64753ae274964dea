import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { grantCredits } from "../../src/operations/credits/grants.ts";
import type { IssuedKey, KeyOptions } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { expectSound, keyRecord, makeDue, partitionFor, readLedger } from "../support/audit.ts";
import {
  expectStatus,
  givenGateway,
  limitsOf,
  type Reply,
  type TestGateway,
  until,
} from "../support/gateway.ts";
import { randomId } from "../support/store.ts";
import {
  generate,
  givenKey,
  givenRedis,
  ready,
  sent,
  TEXT_TO_VIDEO,
  type TestRedis,
} from "../support/store-stage.ts";
import { setKeyFields } from "../support/stored-records.ts";

let redis: TestRedis;
let gateway: TestGateway;
let twin: TestGateway;
beforeAll(async () => {
  redis = await givenRedis();
  const behaviour = { durationMs: 60_000 };
  gateway = await givenGateway({
    redisUrl: redis.url,
    behaviour,
    config: { tasks: { sweepIntervalMs: 20 } },
  });
  twin = await givenGateway({ redisUrl: redis.url, generator: gateway.generator });
  await Promise.all([ready(gateway), ready(twin)]);
});
afterAll(async () => {
  await twin.stop();
  await gateway.stop();
  await redis.stop();
});
beforeEach(() => {
  gateway.generator.requests.length = 0;
});

const given = (options: KeyOptions = {}): Promise<IssuedKey> => givenKey(redis.client, options);
const ledger = (key: IssuedKey) => readLedger(redis.client, key);

/** An account in the same partition, whose records differ from another's in nothing but the account. */
async function neighbourOf(accountId: string): Promise<string> {
  const partition = await partitionFor(redis.client, accountId);
  for (;;) {
    const other = randomId("acc");
    if ((await partitionFor(redis.client, other)) === partition) return other;
  }
}

/** A generation under an Idempotency-Key. */
const keyed = (key: IssuedKey, name: string, prompt?: string, on: TestGateway = gateway): Promise<Reply> =>
  generate(on, key, prompt, { "idempotency-key": name });

function expectReplay(reply: Reply, first: Reply): void {
  expectStatus(reply, 200);
  expect(reply.headers.get("idempotency-replayed")).toBe("true");
  expect(reply.body).toEqual(first.body);
}

test("a repeat is answered from the first, with one charge and one upstream call", async () => {
  const key = await given();
  const first = await keyed(key, "a");
  expect(first.headers.get("idempotency-replayed")).toBeNull();
  for (const on of [gateway, twin]) expectReplay(await keyed(key, "a", undefined, on), first);
  expect(sent(gateway)).toHaveLength(1);
  expect(await ledger(key)).toMatchObject({ balance: 990, totalRequests: 1, windowEntries: 1, dayCount: 1 });
});

test("a replay is given even where nothing more would be admitted, with the true numbers", async () => {
  const key = await given({ credits: 10, limits: { rate_limit: 1, max_concurrent: 1, daily_limit: 1 } });
  const first = await keyed(key, "a");
  // So often that the key is refused from memory.
  for (let nth = 0; nth < 8; nth++) expect((await generate(gateway, key)).body.code).toBe(2001);
  const replay = await keyed(key, "a");
  expectReplay(replay, first);
  expect(limitsOf(replay)).toMatchObject({ limit: 1, remaining: 0, maxConcurrent: 1, active: 1 });
});

test("another order of members and defaults written out is the same request", async () => {
  const key = await given();
  const ask = (body: object) =>
    gateway.request("POST", TEXT_TO_VIDEO, { key: key.key, body, headers: { "idempotency-key": "a" } });
  const first = await ask({ prompt: "x", negativePrompt: "y" });
  expectReplay(await ask({ negativePrompt: "y", aspectRatio: "16:9", prompt: "x" }), first);
});

test("another body or another path under the same key is 422 and costs nothing", async () => {
  const key = await given();
  await keyed(key, "a");
  const body = { prompt: "A paper boat" };
  const headers = { "idempotency-key": "a" };
  const replies = [
    await keyed(key, "a", "Another boat"),
    await gateway.request("POST", "/api/v1/gen2-pro/text-to-video", { key: key.key, body, headers }),
  ];
  for (const reply of replies) {
    expectStatus(reply, 422);
    expect(reply.body).toMatchObject({ code: 422 });
    expect(limitsOf(reply)).toMatchObject({ active: 1 });
  }
  expect(sent(gateway)).toHaveLength(1);
  expect(await ledger(key)).toMatchObject({ balance: 990, totalRequests: 1 });
});

test("while the first is in progress a repeat is 409 with a wait, another body 422", async () => {
  const key = await given();
  const prompt = "[sandbox: delay=3s]";
  const first = keyed(key, "a", prompt);
  await until(() => sent(gateway).length === 1, "the first to reach the upstream");
  for (const on of [gateway, twin]) {
    const repeat = await keyed(key, "a", prompt, on);
    expectStatus(repeat, 409);
    expect(repeat.body.code).toBe(409);
    expect(repeat.body.retryAfter).toBeGreaterThanOrEqual(1);
    expect(repeat.headers.get("retry-after")).toBe(String(repeat.body.retryAfter));
  }
  expectStatus(await keyed(key, "a", "Another boat"), 422);
  expectReplay(await first.then(() => keyed(key, "a", prompt)), await first);
});

describe("after a definite refusal the key may be used again", () => {
  test("400 by validation", async () => {
    const key = await given();
    expectStatus(await keyed(key, "a", "x".repeat(2001)), 400);
    expectStatus(await keyed(key, "a"), 200);
  });

  test("402", async () => {
    const key = await given({ credits: 5 });
    expectStatus(await keyed(key, "a"), 402);
    await grantCredits(oneNode(redis.client), key.accountId, 5, "more", cliActor());
    expectStatus(await keyed(key, "a"), 200);
  });

  test.each([
    ["2001", { rate_limit: 1 }, "rate_limit"],
    ["2002", { max_concurrent: 1 }, "max_concurrent"],
    ["2003", { daily_limit: 1 }, "daily_limit"],
  ] as const)("%s", async (code, limits, field) => {
    const key = await given({ limits });
    await keyed(key, "a");
    expect((await keyed(key, "b")).body.code).toBe(Number(code));
    await setKeyFields(redis.client, await keyRecord(redis.client, key), { [field]: 2 });
    expectStatus(await keyed(key, "b"), 200);
  });

  test.each(["status=400", "status=429", "status=503", "code=402"])("upstream: %s", async (directive) => {
    const key = await given();
    gateway.generator.behave(
      directive.startsWith("code") ? { code: 402 } : { status: Number(directive.split("=")[1]) },
    );
    const refused = await keyed(key, "a").finally(() => gateway.generator.reset());
    gateway.generator.behave({ durationMs: 60_000 });
    expect(refused.status).toBeGreaterThanOrEqual(400);
    expectStatus(await keyed(key, "a"), 200);
    expect(await ledger(key)).toMatchObject({ balance: 990, held: 0 });
  });
});

test("while the outcome is unknown the key stays taken; once it is void it is free", async () => {
  const key = await given();
  gateway.generator.behave({ fault: "reset" });
  const unknown = await keyed(key, "a").finally(() => gateway.generator.reset());
  gateway.generator.behave({ durationMs: 60_000 });
  expectStatus(unknown, 502);
  expect(unknown.headers.get("x-should-retry"), "a retry is safe").toBeNull();
  for (let nth = 0; nth < 3; nth++) {
    const repeat = await keyed(key, "a");
    expectStatus(repeat, 409);
    expect(repeat.body.retryAfter).toBeGreaterThanOrEqual(1);
  }
  expect(sent(gateway)).toHaveLength(1);
  await makeDue(redis.client, key.accountId);
  await until(async () => (await ledger(key)).held === 0, "the hold to be voided");
  expectStatus(await keyed(key, "a"), 200);
  expectSound(await ledger(key));
});

test("a key belongs to its account: shared by the account's keys, unknown to others", async () => {
  const key = await given();
  const sibling = await given({ accountId: key.accountId });
  const stranger = await given({ accountId: await neighbourOf(key.accountId) });
  const first = await keyed(key, "a");
  expectReplay(await keyed(sibling, "a"), first);
  const other = await keyed(stranger, "a");
  expect(other.headers.get("idempotency-replayed")).toBeNull();
  expect(other.body.data.task_id).not.toBe(first.body.data.task_id);
});

test("a revoked key gets no replay", async () => {
  const key = await given();
  await keyed(key, "a");
  await setKeyFields(redis.client, await keyRecord(redis.client, key), { revoked_at: 1 });
  expectStatus(await keyed(key, "a"), 401);
});

test.each(["", " ", "two words", "é", "x".repeat(256)])(
  "an invalid Idempotency-Key is 400: %j",
  async (name) => {
    const key = await given();
    const reply = await keyed(key, name);
    expectStatus(reply, 400);
    expect(reply.body.error).toMatch(/Idempotency-Key/);
    expect(sent(gateway)).toHaveLength(0);
  },
);

test("255 visible characters are a valid Idempotency-Key", async () => {
  const key = await given();
  const first = await keyed(key, "~".repeat(255));
  expectReplay(await keyed(key, "~".repeat(255)), first);
});

test("200 simultaneous repeats over two gateways make one task, one charge, one upstream call", async () => {
  const key = await given();
  const replies = await Promise.all(
    Array.from({ length: 200 }, (_, nth) => keyed(key, "a", undefined, nth % 2 ? gateway : twin)),
  );
  const answered = replies.filter(({ status }) => status === 200);
  expect(new Set(answered.map(({ body }) => body.data.task_id)).size).toBe(1);
  expect(answered.filter(({ headers }) => headers.get("idempotency-replayed") === null)).toHaveLength(1);
  for (const { status, body } of replies) if (status !== 200) expect(body.code).toBe(409);
  expect(sent(gateway)).toHaveLength(1);
  expect(await ledger(key)).toMatchObject({ balance: 990, held: 0, totalRequests: 1, windowEntries: 1 });
});
