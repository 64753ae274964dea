import { expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { consumed, expectSound, readLedger } from "../support/audit.ts";
import { givenGateway, until } from "../support/gateway.ts";
import { generate, givenKey, givenRedis, ready } from "../support/store-stage.ts";

const CLIENTS = 10;

// Guarantee: with an append-only file, what Redis has answered survives its process.
test("kill -9 of Redis under load loses no charge that was answered, and leaves a sound ledger", async () => {
  const redis = await givenRedis();
  const gateway = await givenGateway({ redisUrl: redis.url, config: { store: { commandTimeoutMs: 400 } } });
  await ready(gateway);
  const key = await givenKey(redis.client, {
    credits: 1_000_000,
    limits: { rate_limit: 100_000, max_concurrent: 100_000, daily_limit: 100_000 },
  });

  const taskIds: string[] = [];
  const refusals: number[] = [];
  let over = false;
  const client = async (): Promise<void> => {
    while (!over) {
      const reply = await generate(gateway, key);
      if (reply.status === 200) taskIds.push(reply.body.data.task_id);
      else refusals.push(reply.status);
    }
  };
  const clients = Promise.all(Array.from({ length: CLIENTS }, client));
  try {
    await until(() => taskIds.length >= 100, "traffic");
    await redis.kill();
    await until(() => refusals.length > 0, "the outage to be noticed");
    await redis.startAgain();
    const before = taskIds.length;
    await until(() => taskIds.length >= before + 50, "traffic again");
  } finally {
    over = true;
    await clients;
  }

  expect(new Set(refusals)).toEqual(new Set([503]));
  // Charges answered before their BIND could run are settled by the outbox.
  await until(
    async () => (await readLedger(redis.client, key)).held === 0 && (await waiting()) === 0,
    "the outbox",
  );
  const ledger = await readLedger(redis.client, key);
  expectSound(ledger);
  const charged = consumed(ledger).map(({ taskId }) => taskId);
  expect(taskIds.filter((taskId) => !charged.includes(taskId))).toEqual([]);
  expect((await verifyLedger(oneNode(redis.client), { accountIds: [key.accountId] })).violations).toEqual([]);
  await gateway.stop();
  await redis.stop();

  async function waiting(): Promise<number> {
    const [line] = await gateway.metric("tollgate_store_outbox_entries");
    return Number(line?.split(" ")[1]);
  }
});
