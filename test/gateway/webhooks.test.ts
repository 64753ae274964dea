import { Webhook } from "standardwebhooks";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { until } from "../support/gateway.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import { givenReceiver, givenWebhookStage, type Receiver } from "../support/webhook-stage.ts";

const GENERATE = "/api/v1/gen2/text-to-video";
const EVENTS = ["task.completed", "task.failed"];

let redis: TestRedis;
let stage: Awaited<ReturnType<typeof givenWebhookStage>>;
let receiver: Receiver;
beforeAll(async () => {
  redis = await givenRedis();
  stage = await givenWebhookStage({ redisUrl: redis.url });
});
afterAll(async () => {
  await stage?.stop();
  await redis?.stop();
});
afterEach(() => receiver?.stop());

async function givenEndpoint(events = EVENTS) {
  receiver = await givenReceiver();
  const accountId = await stage.givenAccount(10_000);
  const { key } = await stage.givenKey(accountId);
  const path = `/accounts/${accountId}/webhooks`;
  const { status, body } = await stage.manage("POST", path, { body: { url: receiver.url, events } });
  expect(status, JSON.stringify(body)).toBe(201);
  return { accountId, key, path: `${path}/${body.id}`, endpoint: body };
}

async function finishTask(key: string, prompt = "rain"): Promise<string> {
  const made = await stage.gateway.request("POST", GENERATE, { key, body: { prompt } });
  expect(made.status, JSON.stringify(made.body)).toBe(200);
  const taskId = made.body.data.task_id;
  await until(async () => {
    const { body } = await stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });
    return ["completed", "failed"].includes(body.data.status);
  });
  return taskId;
}

test("a completed task is told once, signed, in the envelope of its poll", async () => {
  const { key, endpoint, path } = await givenEndpoint();
  const taskId = await finishTask(key);
  await until(() => receiver.received.length > 0, "the message");
  const [{ headers, body }] = receiver.received as [Receiver["received"][number]];
  const told = new Webhook(endpoint.secret).verify(body, headers as Record<string, string>);
  const polled = await stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });
  expect(told).toEqual({ type: "task.completed", timestamp: expect.any(String), ...polled.body });
  const { body: deliveries } = await stage.manage("GET", `${path}/deliveries`);
  expect(deliveries.data).toMatchObject([
    {
      id: headers["webhook-id"],
      type: "task.completed",
      status: "delivered",
      attempts: 1,
      response_status: 200,
    },
  ]);
});
