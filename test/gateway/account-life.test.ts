import { afterAll, beforeAll, expect, test } from "vitest";
import { type AccountChanges, patchAccount } from "../../src/operations/accounts/operator-accounts.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import {
  expectStatus,
  givenGateway,
  limitsOf,
  type Reply,
  type TestGateway,
  until,
} from "../support/gateway.ts";
import { sendForm } from "./openapi-stage.ts";
import { asking, BOAT, setLimits, setStatus, TEXT_TO_VIDEO } from "./spec-stage.ts";

let gateway: TestGateway;
let ask: ReturnType<typeof asking>;
beforeAll(async () => {
  gateway = await givenGateway({ config: { tasks: { cacheMs: 0 } } });
  ask = asking(gateway);
});
afterAll(() => gateway.stop());

const CREDITS = "/api/v1/credits";
const GIF = "GIF89a";
const ORDER = { "idempotency-key": "order-1" };

const generate = ({ key }: IssuedKey, body: unknown = BOAT, headers = {}): Promise<Reply> =>
  ask("POST", TEXT_TO_VIDEO, { key, body, headers });
const credits = ({ key }: IssuedKey): Promise<Reply> => ask("GET", CREDITS, { key });
const poll = ({ key }: IssuedKey, taskId: string): Promise<Reply> =>
  ask("GET", `/api/v1/tasks/${taskId}`, { key });

function expectBarred(reply: Reply, detail: string): void {
  expectStatus(reply, 403);
  expect(reply.body).toMatchObject({ code: 403, msg: "Account suspended", error: "Account suspended" });
  const line = gateway.logs.map((text) => JSON.parse(text)).findLast(({ status }) => status === 403);
  expect(line).toMatchObject({ outcome: "account_suspended", detail });
}

/** A key with a task that runs, made with an Idempotency-Key. */
async function givenTask(): Promise<{ key: IssuedKey; taskId: string }> {
  const key = await gateway.givenKey({ credits: 100, limits: { rate_limit: 9, max_concurrent: 9 } });
  const made = await generate(key, BOAT, ORDER);
  expectStatus(made, 200);
  return { key, taskId: made.body.data.task_id };
}

// Guarantee: an operator stops a customer's spending with one change, and the customer still sees what was paid for.
test("a suspended account can poll and read its credits; it cannot generate, upload or replay", async () => {
  const { key, taskId } = await givenTask();
  await setStatus(gateway, key, "suspended");
  const sentBefore = gateway.generator.requests.length;
  for (const [body, headers] of [[BOAT], [BOAT, ORDER], [{ promt: "a typo" }]] as const) {
    const refused = await generate(key, body, headers);
    expectBarred(refused, "the account is suspended");
    expect(limitsOf(refused)).toMatchObject({ limit: 9, remaining: 8, maxConcurrent: 9, active: 1 });
  }
  expectBarred(await sendForm(gateway, key.key, GIF), "the account is suspended");
  expect(gateway.generator.requests).toHaveLength(sentBefore);
  expectStatus(await poll(key, taskId), 200);
  expectStatus(await poll(key, "no-such-task"), 404);
  expectStatus(await ask("GET", "/api/v1/nothing", { key: key.key }), 404);
  const { body } = await credits(key);
  expect(body.data).toMatchObject({ balance: 90, total_requests: 1 });

  await setStatus(gateway, key, "active");
  expectStatus(await generate(key, BOAT, ORDER), 200);
  expectStatus(await generate(key), 200);
});

test("a closed account gets 403 on every path; an unknown key still gets 401", async () => {
  const { key, taskId } = await givenTask();
  // The account has another key, which the gateway has never seen.
  const other = await gateway.givenKey({ accountId: key.accountId, credits: 0 });
  await setStatus(gateway, key, "closed");
  const replies = [
    ...(await Promise.all([key, other].map((one) => generate(one)))),
    await generate(key, { promt: "a typo" }),
    await sendForm(gateway, key.key, GIF),
    await poll(key, taskId),
    await poll(key, "!"),
    await credits(key),
    await ask("GET", "/api/v1/nothing", { key: key.key }),
    await ask("DELETE", CREDITS, { key: key.key }),
  ];
  for (const reply of replies) expectBarred(reply, "the account is closed");
  expectStatus(await generate({ ...key, key: "sk_unknown" }), 401);
  await setStatus(gateway, key, "active");
  expectStatus(await poll(key, taskId), 200);
});

// Guarantee: a company that has a key per department cannot get more by having more keys.
test("limits over all keys of an account answer as those of a key do, and the log says whose they are", async () => {
  const key = await gateway.givenKey({
    credits: 100,
    limits: { rate_limit: 9, max_concurrent: 9, daily_limit: 9 },
  });
  const other = await gateway.givenKey({ accountId: key.accountId, credits: 0, limits: { rate_limit: 9 } });
  const limit = (limits: AccountChanges["limits"]) =>
    patchAccount(oneNode(gateway.redis), key.accountId, { limits }, cliActor("test"));
  expectStatus(await generate(key), 200);
  // The task that is open counts.
  await limit({ max_concurrent: 1 });
  const line = () => gateway.logs.map((text) => JSON.parse(text)).findLast(({ status }) => status === 429);
  const concurrent = await generate(other);
  expect(concurrent.body).toMatchObject({ code: 2002, retryAfter: 10 });
  expect(limitsOf(concurrent)).toMatchObject({ maxConcurrent: 1, active: 1 });
  expect(line()).toMatchObject({ outcome: "concurrency_limited", limit_of: "account", limit: 1, used: 1 });

  await limit({ max_concurrent: null, rate_limit: 2, daily_limit: 3 });
  expectStatus(await generate(other), 200);
  expectStatus(await generate(key), 200);
  for (const one of [key, other, key, other, key, other, key, other, key, other, key, other]) {
    const limited = await generate(one);
    expect(limited.body.code).toBe(2001);
    expect(limitsOf(limited)).toMatchObject({ limit: 2, remaining: 0 });
    expect(line()).toMatchObject({ outcome: "rate_limited", limit_of: "account", limit: 2, used: 2 });
  }
  await limit({ rate_limit: null, daily_limit: 2 });
  // A key that hammers is refused from memory for up to a second.
  await until(async () => (await generate(other)).body.code === 2003, "the limit of the day");
  expect(line()).toMatchObject({ outcome: "daily_limited", limit_of: "account", limit: 2, used: 2 });
  expect((await credits(other)).body.data.limits).toMatchObject({ rate_limit: 9, daily_limit: 2 });

  await limit({ daily_limit: null });
  await setLimits(gateway, key, { daily_limit: 1 });
  await until(async () => (await generate(key)).body.code === 2003, "the limit of the day");
  expect(line()).toMatchObject({ outcome: "daily_limited", limit_of: "key", limit: 1 });
});

test("an account that is suspended while its generation runs is charged for it, once", async () => {
  const key = await gateway.givenKey({ credits: 100 });
  gateway.generator.behave({ delayMs: 300 });
  const sentBefore = gateway.generator.requests.length;
  const running = generate(key);
  while (gateway.generator.requests.length === sentBefore) await new Promise(setImmediate);
  await setStatus(gateway, key, "suspended");
  expectStatus(await running, 200);
  expect((await credits(key)).body.data).toMatchObject({ balance: 90, total_used: 10 });
});
