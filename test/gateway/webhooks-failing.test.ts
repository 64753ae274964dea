import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { endpointNames } from "../../src/records/names.ts";
import { partitionFor } from "../support/audit.ts";
import { until } from "../support/gateway.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import {
  answer,
  finishTask,
  givenEndpoint,
  givenKnownEndpoint,
  givenReceiver,
  givenWebhookStage,
  type Receiver,
} from "../support/webhook-stage.ts";

let redis: TestRedis;
let stage: Awaited<ReturnType<typeof givenWebhookStage>>;
let receiver: Receiver;
beforeAll(async () => {
  redis = await givenRedis();
  stage = await givenWebhookStage({
    redisUrl: redis.url,
    config: { webhooks: { timeoutMs: 500, disableAfterMs: 1000, retriesMs: new Array(20).fill(0) } },
  });
});
afterAll(async () => {
  await stage?.stop();
  await redis?.stop();
});
beforeEach(async () => {
  receiver = await givenReceiver();
});
afterEach(() => receiver.stop());

test("a redirect is a failure, and is not followed", async () => {
  const { key, deliveries } = await givenEndpoint(stage, receiver.url);
  const other = await givenReceiver();
  receiver.say(answer(302, { location: other.url }));
  await finishTask(stage.gateway, key);
  await until(() => receiver.received.length >= 2, "a retry");
  expect(other.received).toEqual([]);
  expect(await deliveries()).toMatchObject([{ response_status: 302 }]);
  await other.stop();
});

test("where no answer came, the delivery says why in words", async () => {
  const { key, deliveries } = await givenEndpoint(stage, receiver.url);
  receiver.say((response) => void response.destroy());
  await finishTask(stage.gateway, key);
  await until(() => receiver.received.length >= 2, "a retry");
  expect(await deliveries()).toMatchObject([
    { response_status: null, response: "the connection was closed before an answer" },
  ]);
});

test("a message whose sealed secret was changed in the store is not sent, and its delivery says so", async () => {
  const { key, accountId, id, deliveries } = await givenEndpoint(stage, receiver.url);
  const { endpoint } = endpointNames(await partitionFor(redis.client, accountId), id);
  const sealed = await redis.client.hget(endpoint, "secret");
  await redis.client.hset(endpoint, "secret", `${sealed?.slice(0, -4)}AAAA`);
  await finishTask(stage.gateway, key);
  await until(async () => (await deliveries())[0].attempts > 0, "a try");
  expect(await deliveries()).toMatchObject([{ response_status: null, response: "it could not be signed" }]);
  expect(receiver.received).toEqual([]);
});

test("410 disables the endpoint, in the audit by the system", async () => {
  const { key, id, read } = await givenEndpoint(stage, receiver.url);
  receiver.say(answer(410));
  await finishTask(stage.gateway, key);
  await until(async () => (await read()).status === "disabled", "it to be disabled");
  expect(await read()).toMatchObject({ disabled_reason: "gone" });
  const lines = stage.gateway.logs.filter((line) => line.includes("a webhook endpoint was disabled"));
  expect(lines).toEqual([expect.stringContaining(id)]);
  expect(receiver.received).toHaveLength(1);
  const { body } = await stage.manage("GET", "/audit?limit=1");
  expect(body.data).toMatchObject([{ action: "webhook.disable", by: "system", request_id: null }]);
});

test("failures for as long as the setting says disable the endpoint", async () => {
  const { key, read } = await givenEndpoint(stage, receiver.url);
  receiver.say(answer(500, { "retry-after": "1" }));
  for (let task = 0; task < 6; task++) await finishTask(stage.gateway, key);
  await until(async () => (await read()).status === "disabled", "it to be disabled");
  expect(await read()).toMatchObject({ disabled_reason: "failing" });
  expect(receiver.received.length).toBeGreaterThanOrEqual(10);
});

test("Retry-After is obeyed", async () => {
  const { key } = await givenEndpoint(stage, receiver.url);
  receiver.say((response, received) =>
    answer(receiver.received.length < 2 ? 429 : 200, { "retry-after": "2" })(response, received),
  );
  await finishTask(stage.gateway, key);
  await until(() => receiver.received.length === 2, "the retry");
  const [first, second] = receiver.received;
  expect(second!.atMs - first!.atMs).toBeGreaterThanOrEqual(2000);
});

// Guarantee: one that hangs delays nobody, and has at most four under way.
test("an endpoint that hangs delays no other, and resets and early ends are failures", async () => {
  const hanging = await givenKnownEndpoint(stage, receiver);
  receiver.say(() => undefined);
  for (let task = 0; task < 12; task++) await finishTask(stage.gateway, hanging.key);
  await until(() => receiver.received.length >= 4, "four under way");
  const quick = await givenReceiver();
  const other = await givenEndpoint(stage, quick.url);
  quick.say((response, received) => {
    const nth = quick.received.length;
    if (nth === 1) response.destroy();
    else if (nth === 2) void response.writeHead(200, { "content-length": "100" }).end("cut");
    else answer(200)(response, received);
  });
  for (let task = 0; task < 5; task++) await finishTask(stage.gateway, other.key);
  await until(() => new Set(quick.ids()).size === 5, "all five");
  expect(receiver.mostUnderWay()).toBe(4);
  await quick.stop();
});
