import { afterAll, beforeAll, expect, test } from "vitest";
import { runHere } from "../support/cli.ts";
import { expectStatus, givenGateway, type Reply, type TestGateway, until } from "../support/gateway.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { givenManageStage, type ManageStage } from "./manage-stage.ts";
import { sendForm } from "./openapi-stage.ts";
import { BOAT, conforming, TEXT_TO_VIDEO } from "./spec-stage.ts";

// Maintenance is of a whole store, so this one is of no other test.

let redis: TestRedis;
let stage: ManageStage;
let other: TestGateway;
beforeAll(async () => {
  redis = await givenRedis();
  stage = await givenManageStage({ redisUrl: redis.url });
  other = await givenGateway({ redisUrl: redis.url, generator: stage.gateway.generator });
  await until(async () => (await fetch(`${other.adminUrl}/readyz`)).status === 200, "the other gateway");
});
afterAll(async () => {
  await other.stop();
  await stage.stop();
  await redis.stop();
});

const generate = (gateway: TestGateway, key: string): Promise<Reply> =>
  gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
const set = (body: object, token?: string) =>
  stage.manage("PUT", "/maintenance", { body, ...(token !== undefined && { token }) });

// Guarantee: work on the generator costs no customer a credit, and no customer loses sight of a task.
test("generations and uploads are 503 in every gateway within two seconds, polls and credits go on", async () => {
  const account = await stage.givenAccount(1_000_000);
  const limits = { rate_limit: 9999, max_concurrent: 9999, daily_limit: 9999 };
  const { key } = await stage.givenKey(account, { limits });
  const made = await generate(other, key);
  expectStatus(made, 200);
  expectStatus(await set({ on: true, retry_after: 120, message: "Back at 14:00 UTC" }), 200);
  const beganMs = performance.now();
  for (const gateway of [stage.gateway, other])
    await until(async () => (await generate(gateway, key)).status === 503, "maintenance");
  expect(performance.now() - beganMs).toBeLessThan(5000);
  const sentBefore = stage.gateway.generator.requests.length;
  for (const refused of [await generate(other, key), await sendForm(other, key, "GIF89a")]) {
    expectStatus(conforming(refused), 503);
    expect(refused.body).toMatchObject({ code: 503, error: "Back at 14:00 UTC", retryAfter: 120 });
    expect(refused.headers.get("retry-after")).toBe("120");
  }
  expect(stage.gateway.generator.requests).toHaveLength(sentBefore);
  expectStatus(await generate(other, "sk_unknown"), 401);
  expectStatus(await other.request("GET", `/api/v1/tasks/${made.body.data.task_id}`, { key }), 200);
  const before = (await other.request("GET", "/api/v1/credits", { key })).body.data;
  await generate(other, key);
  expect((await other.request("GET", "/api/v1/credits", { key })).body.data).toEqual(before);

  expect((await stage.manage("GET", "/maintenance")).body).toMatchObject({ on: true, retry_after: 120 });
  expect((await set({ on: false })).body).toEqual({
    on: false,
    retry_after: null,
    message: null,
    since: null,
  });
  for (const gateway of [stage.gateway, other])
    await until(async () => (await generate(gateway, key)).status !== 503, "the end of maintenance");
  const { body } = await stage.manage("GET", "/audit?action=maintenance.set");
  expect(body.data).toHaveLength(2);
});

// Guarantee: a gateway may be restarted during maintenance.
test("a gateway that starts during maintenance refuses generations from its first answer on", async () => {
  const { key } = await stage.givenKey(await stage.givenAccount(1000));
  expectStatus(await set({ on: true, retry_after: 120 }), 200);
  const started = await givenGateway({ redisUrl: redis.url, generator: stage.gateway.generator });
  try {
    await until(async () => (await fetch(`${started.adminUrl}/readyz`)).status === 200, "the gateway");
    expectStatus(await generate(started, key), 503);
  } finally {
    await set({ on: false });
    await started.stop();
  }
});

// Guarantee: programs that ignore Retry-After do not load the store that may be what is maintained.
test("generations of a key above its rate are refused before the store is asked", async () => {
  const strict = await givenGateway({
    redisUrl: redis.url,
    generator: stage.gateway.generator,
    config: { server: { utilityRequestsPerSecond: 1 } },
  });
  try {
    const { key } = await stage.givenKey(await stage.givenAccount(1000));
    expectStatus(await set({ on: true, retry_after: 120 }), 200);
    await until(async () => (await generate(strict, key)).status === 503, "maintenance");
    const replies = await Promise.all(Array.from({ length: 30 }, () => generate(strict, key)));
    const slowed = replies.filter(({ body }) => body.code === 2007);
    expect(slowed.length).toBeGreaterThanOrEqual(15);
  } finally {
    await set({ on: false });
    await strict.stop();
  }
});

test("only a token of all accounts with its scope begins it, with a message and a wait that make sense", async () => {
  const token = await stage.givenToken(["usage:read"]);
  expectStatus(await set({ on: true }, token), 403);
  const account = await stage.givenAccount();
  const own = await stage.givenToken(["maintenance:write"], { accounts: [account] });
  expectStatus(await set({ on: true }, own), 403);
  for (const body of [{}, { on: "yes" }, { on: true, retry_after: 0 }, { on: true, message: "two\nlines" }])
    expectStatus(await set(body), 400, JSON.stringify(body));
  expect((await stage.manage("GET", "/maintenance", { token })).body.on).toBe(false);
});

test("the command line begins and ends it, and doctor tells of it", async () => {
  const env = { REDIS_URL: redis.url };
  const ready = async (): Promise<unknown[]> =>
    JSON.parse((await runHere(["doctor", "--json"], env)).stdout).checks.filter(
      ({ name }: { name: string }) => name === "ready",
    );
  const on = await runHere(["maintenance", "on", "--retry-after", "90", "--json"], env);
  expect(JSON.parse(on.stdout)).toMatchObject({ on: true, retry_after: 90 });
  expect(await ready()).toMatchObject([
    { status: "warn", message: expect.stringMatching(/^maintenance since .* UTC/) },
  ]);
  const off = await runHere(["maintenance", "off", "--json"], env);
  expect(JSON.parse(off.stdout)).toMatchObject({ on: false });
  expect(await ready()).toEqual([]);
});
