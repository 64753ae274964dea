import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { readLedger } from "../support/audit.ts";
import { runHere } from "../support/cli.ts";
import { expectStatus, type Reply, until } from "../support/gateway.ts";
import {
  away,
  expectStoreAway,
  generate,
  givenRedis,
  givenStage,
  ready,
  type Stage,
  settled,
  type TestRedis,
} from "../support/store-stage.ts";

let redis: TestRedis;
let folder: string;
/** Two processes with one journal folder, and a gateway elsewhere. */
let maker: Stage;
let neighbour: Stage;
let elsewhere: Stage;
beforeAll(async () => {
  redis = await givenRedis();
  folder = await mkdtemp(join(tmpdir(), "tollgate-journal-"));
  const config = { store: { fallbackStrategy: "allow" as const }, tasks: { cacheMs: 0 } };
  const shared = { ...config, store: { ...config.store, journal: folder } };
  maker = await givenStage({ redis, config: shared });
  const { generator } = maker.gateway;
  neighbour = await givenStage({ redis, config: shared, generator });
  elsewhere = await givenStage({ redis, config, generator });
});
afterAll(async () => {
  await neighbour.stop();
  await elsewhere.stop();
  await maker.stop();
  await redis.stop();
  await rm(folder, { recursive: true, force: true });
});

const poll = (stage: Stage, taskId: string, { key }: IssuedKey): Promise<Reply> =>
  stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });

/** A key that all of them have seen good. */
async function givenSeenKey(): Promise<IssuedKey> {
  const key = await maker.givenKey({ credits: 10 });
  expectStatus(await generate(maker.gateway, key), 200);
  for (const { gateway } of [neighbour, elsewhere])
    expectStatus(await gateway.request("GET", "/api/v1/credits", { key: key.key }), 200);
  return key;
}

async function whileAway(work: () => Promise<void>): Promise<void> {
  const stages = [maker, neighbour, elsewhere];
  for (const { proxy } of stages) await proxy.steer({ connections: "reset" });
  try {
    for (const { gateway } of stages) await away(gateway);
    await work();
  } finally {
    for (const { proxy } of stages) await proxy.heal();
    for (const { gateway } of stages) await ready(gateway);
  }
}

async function expectSound(): Promise<void> {
  const { ok, violations } = await verifyLedger(oneNode(redis.client));
  expect(violations).toEqual([]);
  expect(ok).toBe(true);
}

// Guarantee: a task made in an outage is its customer's everywhere, costs nothing and takes nothing.
test("a task made in an outage is bound at price 0, once, and found by every gateway", async () => {
  const key = await givenSeenKey();
  const before = await readLedger(redis.client, key);
  let taskId = "";
  await whileAway(async () => {
    taskId = (await generate(maker.gateway, key)).body.data.task_id;
    expectStatus(await poll(maker, taskId, key), 200);
    expectStatus(await poll(neighbour, taskId, key), 200, "by the journal");
    expectStoreAway(await poll(elsewhere, taskId, key));
  });
  await settled(maker.gateway);
  for (const stage of [maker, neighbour, elsewhere]) {
    const reply = await poll(stage, taskId, key);
    expectStatus(reply, 200);
    expect(reply.headers.get("x-gateway-degraded")).toBeNull();
  }
  const after = await readLedger(redis.client, key);
  const entry = { type: "consume", amount: 0, balanceAfter: 0, reason: "unmetered", taskId };
  expect(after.entries.slice(before.entries.length)).toEqual([expect.objectContaining(entry)]);
  expect(after).toEqual({ ...before, entries: after.entries });
  await expectSound();
});

test("another account finds nothing of it, neither in the outage nor after it", async () => {
  const [key, stranger] = [await givenSeenKey(), await givenSeenKey()];
  let taskId = "";
  await whileAway(async () => {
    taskId = (await generate(maker.gateway, key)).body.data.task_id;
    for (const stage of [maker, neighbour, elsewhere]) expectStoreAway(await poll(stage, taskId, stranger));
  });
  await settled(maker.gateway);
  for (const stage of [maker, neighbour, elsewhere]) expectStatus(await poll(stage, taskId, stranger), 404);
});

// Guarantee: no customer is told that there is no such task while its gateway may still have to say so.
test("just after an outage, an id that nobody has bound is 503, then 404", async () => {
  const key = await givenSeenKey();
  await whileAway(async () => undefined);
  const reply = await poll(elsewhere, "task_that_nobody_made", key);
  expectStatus(reply, 503);
  expect(reply.body.retryAfter).toBe(2);
  const known = async () => (await poll(elsewhere, "task_that_nobody_made", key)).status === 404;
  await until(known, "the other gateways to have sent what they kept");
});

test("with an Idempotency-Key, a repeat after the outage is the same task, and costs nothing", async () => {
  const key = await givenSeenKey();
  const headers = { "idempotency-key": "order-1" };
  let taskId = "";
  await whileAway(async () => {
    taskId = (await generate(maker.gateway, key, "A paper boat", headers)).body.data.task_id;
  });
  await settled(maker.gateway);
  const repeat = await generate(elsewhere.gateway, key, "A paper boat", headers);
  expect(repeat.body.data).toMatchObject({ task_id: taskId });
  expect(repeat.headers.get("idempotency-replayed")).toBe("true");
  expect(await readLedger(redis.client, key)).toMatchObject({ balance: 0, held: 0, totalRequests: 1 });
});

// Guarantee: nothing is refunded that was not charged.
test("an unmetered task that fails ends, refunds nothing, and can't be refunded", async () => {
  const key = await givenSeenKey();
  let taskId = "";
  await whileAway(async () => {
    taskId = (await generate(maker.gateway, key, "[sandbox: fail]")).body.data.task_id;
  });
  await settled(maker.gateway);
  const ended = async () => (await poll(elsewhere, taskId, key)).body.data?.status === "failed";
  await until(ended, "the task to fail");
  const ledger = await readLedger(redis.client, key);
  expect(ledger.entries.filter((entry) => entry.taskId === taskId)).toHaveLength(1);
  expect(ledger).toMatchObject({ balance: 0, held: 0 });
  await expectSound();
});

test("the ledger's export names it, and the account's tasks list it", async () => {
  const key = await givenSeenKey();
  let taskId = "";
  await whileAway(async () => {
    taskId = (await generate(maker.gateway, key)).body.data.task_id;
  });
  await settled(maker.gateway);
  const exported = await runHere(["ledger", "export", "--account", key.accountId], { REDIS_URL: redis.url });
  const rows = exported.stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(rows.find((row) => row.task_id === taskId)).toMatchObject({
    ...{ type: "consume", amount: 0, reason: "unmetered", key_id: key.keyId },
    request_id: expect.stringMatching(/^unmetered_[0-9a-f]{32}$/),
  });
  const shown = await runHere(["tasks", "show", taskId, "--json"], { REDIS_URL: redis.url });
  expect(JSON.parse(shown.stdout)).toMatchObject({
    ...{ price: 0, unmetered: true },
    account_id: key.accountId,
  });
});
