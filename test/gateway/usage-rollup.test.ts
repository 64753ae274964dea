import { afterAll, beforeAll, expect, test } from "vitest";
import { accountUsage, moneyNow } from "../../src/ledger/account-usage.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { generate, givenKey, givenRedis, PRICE, ready, type TestRedis } from "../support/store-stage.ts";

// Money of the whole gateway is that of a whole store: one that no other test writes to.

let redis: TestRedis;
let one: TestGateway;
let two: TestGateway;
beforeAll(async () => {
  redis = await givenRedis();
  one = await givenGateway({ redisUrl: redis.url });
  two = await givenGateway({ redisUrl: redis.url, generator: one.generator });
  for (const gateway of [one, two]) await ready(gateway);
});
afterAll(async () => {
  await two?.stop();
  await one?.stop();
  await redis?.stop();
});

// Guarantee: usage follows from what customers did, within about a second, and two gateways count nothing twice.
test("gateways roll up what was charged, and ends of tasks, once", async () => {
  const nodes = oneNode(redis.client);
  const key = await givenKey(redis.client, { credits: 1000 });
  for (const gateway of [one, two, one, two]) expect((await generate(gateway, key)).status).toBe(200);
  const { accountId } = key;
  const read = async () => (await accountUsage(nodes, { accountId, by: [] })).rows[0];
  await until(async () => (await read())?.requests === 4, "the charges to be counted");
  expect(await read()).toMatchObject({ requests: 4, credits: 4 * PRICE, refunds: 0 });
  expect((await moneyNow(nodes)).today).toMatchObject({ charged: 4 * PRICE, trials: 1000, requests: 4 });
});

// Guarantee: nothing waits for the next write to be counted.
test("what came while another gateway had the lease is counted once that is over", async () => {
  const nodes = oneNode(redis.client);
  const { trials } = (await moneyNow(nodes)).today;
  await redis.client.set("tg:rollup-lease", "another", "PX", 3000);
  await givenKey(redis.client, { credits: 50 });
  await until(async () => (await moneyNow(nodes)).today.trials === trials + 50, "the grant to be counted");
});
