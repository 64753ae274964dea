import { expect, test } from "vitest";
import { send, until } from "../support/gateway.ts";
import { startGenerator } from "../support/generator.ts";
import { startGatewayProcess } from "../support/processes.ts";
import {
  finishTask,
  givenEndpoint,
  givenKnownEndpoint,
  givenWebhookStage,
  ownRedisAndReceiver,
  WEBHOOK_SECRET_KEY,
} from "../support/webhook-stage.ts";

const own = ownRedisAndReceiver();

type Stage = Awaited<ReturnType<typeof givenWebhookStage>>;
const delivered = async ({ gateway }: Stage): Promise<number> => {
  const [line = ""] = await gateway.metric('tollgate_webhook_deliveries_total{outcome="delivered"}');
  return Number(line.split(" ").at(-1));
};

test("two gateways share the deliveries, and none is sent twice", async () => {
  const one = await givenWebhookStage({ redisUrl: own.redis.url });
  const { generator } = one.gateway;
  const two = await givenWebhookStage({ redisUrl: own.redis.url, generator, behaviour: {} });
  const { key } = await givenEndpoint(one, own.receiver.url);
  for (let task = 0; task < 60; task += 10)
    await Promise.all(
      Array.from({ length: 10 }, (_, nth) => finishTask(nth % 2 === 0 ? one.gateway : two.gateway, key)),
    );
  await until(() => own.receiver.received.length >= 60, "all messages");
  await until(async () => (await delivered(one)) + (await delivered(two)) === 60, "all settled");
  expect(new Set(own.receiver.ids()).size).toBe(60);
  expect(own.receiver.received).toHaveLength(60);
  await two.stop();
  await one.stop();
});

// Guarantee: a lease is of one delivery and outlives its try, so a slow receiver gets nothing twice at a time.
test("a message that takes long is sent by one of two gateways, and once more, after it, if that is wished meanwhile", async () => {
  const config = { webhooks: { timeoutMs: 10_000 } };
  const one = await givenWebhookStage({ redisUrl: own.redis.url, config });
  const { generator } = one.gateway;
  const two = await givenWebhookStage({ redisUrl: own.redis.url, generator, behaviour: {}, config });
  const { path, ended } = await givenEndpoint(one, own.receiver.url);
  own.receiver.say((response) => void setTimeout(() => response.end(), 3000));
  const { body } = await one.manage("POST", `${path}/test`);
  await until(() => own.receiver.received.length === 1, "a try under way");
  await one.manage("POST", `${path}/deliveries/${body.id}/redeliver`);
  expect(own.receiver.received).toHaveLength(1);
  await until(() => own.receiver.received.length === 2, "the wish");
  expect(await ended(body.id)).toMatchObject({ status: "delivered", attempts: 2 });
  expect(own.receiver.ids()).toEqual([body.id, body.id]);
  expect(own.receiver.mostUnderWay()).toBe(1);
  await two.stop();
  await one.stop();
});

test("what a gateway was sending as it was killed is sent by another, under the same webhook-id", async () => {
  const stage = await givenWebhookStage({ redisUrl: own.redis.url });
  const { key } = await givenKnownEndpoint(stage, own.receiver);
  await stage.stop();
  const generator = await startGenerator();
  generator.behave({ durationMs: 0, startDelayMs: 0 });
  const killed = await startGatewayProcess({
    ...{ redisUrl: own.redis.url, upstreamUrl: generator.url },
    config: { webhooks: { allow_networks: ["127.0.0.0/8"], timeout: "1s" } },
    env: { WEBHOOK_SECRET_KEY },
  });
  own.receiver.say(() => undefined);
  const request = (method: string, path: string, more = {}) => send(killed.url, method, path, more);
  for (let task = 0; task < 3; task++) await finishTask({ request }, key);
  await until(() => own.receiver.received.length === 3, "three under way");
  killed.signal("SIGKILL");
  await killed.ended();
  const ids = new Set(own.receiver.ids());
  own.receiver.say((response) => void response.end());
  const other = await givenWebhookStage({ redisUrl: own.redis.url, generator, behaviour: {} });
  await until(() => own.receiver.received.length === 6, "the same three again");
  expect(new Set(own.receiver.ids())).toEqual(ids);
  expect(ids.size).toBe(3);
  await until(async () => (await delivered(other)) === 3);
  await other.stop();
  await killed.stop();
  await generator.stop();
});

test("what waits survives a killed Redis", async () => {
  const stage = await givenWebhookStage({
    redisUrl: own.redis.url,
    config: { webhooks: { retriesMs: [3000] } },
  });
  const { key } = await givenEndpoint(stage, own.receiver.url);
  own.receiver.say((response) => void response.writeHead(500).end());
  await finishTask(stage.gateway, key);
  await until(
    async () => (await own.redis.client.keys("tg:{*}:webhooks-retry")).length === 1,
    "a retry to wait",
  );
  await own.redis.kill();
  own.receiver.say((response) => void response.end());
  await own.redis.startAgain();
  await until(() => own.receiver.received.length === 2, "the retry");
  expect(new Set(own.receiver.ids()).size).toBe(1);
  await stage.stop();
});

test("an emptied Redis ends nothing but the deliveries", async () => {
  const stage = await givenWebhookStage({
    redisUrl: own.redis.url,
    config: { webhooks: { retriesMs: [2000] } },
  });
  const { key } = await givenEndpoint(stage, own.receiver.url);
  own.receiver.say((response) => void setTimeout(() => response.writeHead(500).end(), 200));
  await finishTask(stage.gateway, key);
  await until(() => own.receiver.received.length === 1, "a try under way");
  await own.redis.client.flushall();
  await until(async () => (await fetch(`${stage.gateway.adminUrl}/readyz`)).status === 503, "it to be seen");
  expect((await fetch(`${stage.gateway.adminUrl}/livez`)).status).toBe(200);
  expect(own.receiver.received).toHaveLength(1);
  await stage.stop();
});

// Guarantee: dispatchers that are dead behind a green health show, by the store and not by their own memory.
test("deliveries that nobody sends are overdue in the metrics, and a gateway with a wrong key uses up no try", async () => {
  const stage = await givenWebhookStage({ redisUrl: own.redis.url, config: { webhooks: { inFlight: 0 } } });
  const { generator } = stage.gateway;
  const config = { webhooks: { secretKey: `another ${WEBHOOK_SECRET_KEY}` } };
  const wrong = await givenWebhookStage({ redisUrl: own.redis.url, generator, behaviour: {}, config });
  const { key, deliveries } = await givenEndpoint(stage, own.receiver.url);
  await finishTask(stage.gateway, key);
  const figure = async (name: string): Promise<number> =>
    Number((await stage.gateway.metric(`${name} `))[0]?.split(" ").at(-1));
  await until(async () => (await figure("tollgate_webhook_overdue_seconds")) > 2, "it to be overdue");
  expect(await figure("tollgate_webhook_deliveries_waiting")).toBe(1);
  expect(await figure("tollgate_webhook_events_bytes")).toBeGreaterThan(500);
  expect((await fetch(`${stage.gateway.adminUrl}/readyz`)).status).toBe(200);
  expect(own.receiver.received).toEqual([]);
  expect(await deliveries()).toMatchObject([{ status: "waiting", attempts: 0 }]);
  const lines = wrong.gateway.logs.filter((line) => line.includes("does not open the secrets"));
  expect(lines, "once a minute").toHaveLength(1);
  await wrong.stop();
  await stage.stop();
});
