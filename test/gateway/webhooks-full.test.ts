import { expect, test } from "vitest";
import { verifyLedger } from "../../src/ledger/verify.ts";
import { webhookNames } from "../../src/records/names.ts";
import { oneNode, partitionsOf } from "../../src/redis/store-facts.ts";
import { type TestGateway, until } from "../support/gateway.ts";
import {
  finishTask,
  givenEndpoint,
  givenWebhookStage,
  ownRedisAndReceiver,
} from "../support/webhook-stage.ts";

const PARTITION_BYTES_MAX = 16 * 1024 * 1024;

const own = ownRedisAndReceiver();

// Guarantee: messages never take the memory of the money. What has no room is dropped, counted and said.
test("where the store's events are full, messages are dropped and said; tasks are admitted, charged and end", async () => {
  const stage = await givenWebhookStage({ redisUrl: own.redis.url });
  const endpoint = await givenEndpoint(stage, own.receiver.url);
  const nodes = oneNode(own.redis.client);
  const totals = Array.from({ length: await partitionsOf(nodes) }, (_, at) => webhookNames(at).totals);
  for (const name of totals) await own.redis.client.hset(name, " bytes", PARTITION_BYTES_MAX);
  for (let task = 0; task < 5; task++) await finishTask(stage.gateway, endpoint.key);
  const test = await stage.manage("POST", `${endpoint.path}/test`);
  expect(test).toMatchObject({ status: 409, body: { code: "too_many_deliveries" } });
  expect(await endpoint.read()).toMatchObject({ dropped: 6, waiting: 0 });
  expect(await endpoint.deliveries()).toEqual([]);
  const droppedAt = async (gateway: TestGateway): Promise<string | undefined> =>
    (await gateway.metric("tollgate_webhook_deliveries_dropped "))[0]?.split(" ").at(-1);
  const dropped = async (): Promise<number> => Number(await droppedAt(stage.gateway));
  await until(async () => (await dropped()) === 6, "the metric to say so");
  // Guarantee: TollgateWebhooksDropped takes nothing that was dropped before a gateway starts for new.
  const later = await givenWebhookStage({ redisUrl: own.redis.url });
  const seen = new Set([await droppedAt(later.gateway)]);
  await until(async () => seen.add(await droppedAt(later.gateway)).has("6"), "the next gateway to say so");
  expect(seen).not.toContain("0");
  await later.stop();
  const { ok, violations, entries } = await verifyLedger(nodes);
  expect({ ok, violations }).toEqual({ ok: true, violations: [] });
  expect(entries).toBeGreaterThanOrEqual(6);
  expect(own.receiver.received).toEqual([]);
  for (const name of totals) await own.redis.client.hset(name, " bytes", 0);
  await finishTask(stage.gateway, endpoint.key);
  await until(() => own.receiver.received.length === 1, "a message, once there is room");
  await stage.stop();
});
