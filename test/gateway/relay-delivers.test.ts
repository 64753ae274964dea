import { Webhook } from "standardwebhooks";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { type CallbackUpstream, givenCallbackUpstream, type MadeTask } from "../support/callback-upstream.ts";
import { expectStatus, type Reply, type TestGateway, until } from "../support/gateway.ts";
import { innerAddresses } from "../support/inner-addresses.ts";
import { callBack, PUBLIC_URL, STORYBOARD } from "../support/relay-stage.ts";
import { givenRedis, TEXT_TO_VIDEO, type TestRedis } from "../support/store-stage.ts";
import { answer, givenReceiver, givenWebhookStage, type Receiver } from "../support/webhook-stage.ts";

// Guarantee: the customer is told by the gateway, after the task is settled, and as reliably as an endpoint.

type Stage = Awaited<ReturnType<typeof givenWebhookStage>>;

let redis: TestRedis;
let upstream: CallbackUpstream;
let stage: Stage;
let receiver: Receiver;
beforeAll(async () => {
  [redis, upstream] = await Promise.all([givenRedis(), givenCallbackUpstream()]);
  const webhooks = { publicUrl: PUBLIC_URL, callbacks: "all" as const };
  stage = await givenWebhookStage({ redisUrl: redis.url, upstreamUrl: upstream.url, config: { webhooks } });
});
afterEach(async () => {
  upstream.behave({});
  await receiver?.stop();
});
afterAll(async () => {
  await stage?.stop();
  upstream?.stop();
  await redis?.stop();
});

const latest = (): MadeTask => upstream.tasks.at(-1)!;
const storyboard = ({ key }: Pick<IssuedKey, "key">, callBackUrl: string): Promise<Reply> => {
  const body = { nFrames: "10", shots: [{ Scene: "A lighthouse", duration: 10 }], callBackUrl };
  return stage.gateway.request("POST", STORYBOARD, { key, body });
};

async function given() {
  receiver = await givenReceiver();
  const accountId = await stage.givenAccount(10_000);
  return { accountId, ...(await stage.givenKey(accountId)) };
}

async function receivedMessages(count = 1) {
  await until(() => receiver.received.length >= count, "the message");
  return receiver.received
    .slice(-count)
    .map(({ url, headers, body }) => ({ url, headers, body: JSON.parse(body) }));
}

test("the customer's address is told once the task has ended, and a poll from there shows the same end", async () => {
  const { key } = await given();
  let shown: Reply | undefined;
  receiver.say((response, { body }) => {
    const { task_id: taskId } = JSON.parse(body).data;
    void stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key }).then((reply) => {
      shown = reply;
      response.writeHead(200).end();
    });
  });
  expectStatus(await storyboard({ key }, `${receiver.url}?order=7`), 200);
  latest().status = "completed";
  expectStatus(await callBack(stage.gateway as TestGateway, latest()), 200);
  const [message] = await receivedMessages();
  await until(() => shown !== undefined, "the poll");
  expect(message).toMatchObject({
    url: "/hook?order=7",
    body: { type: "task.completed", code: 200, msg: "success" },
  });
  expect(message?.body.data).toEqual(shown?.body.data);
  expect(shown?.body.data).toMatchObject({ task_id: latest().taskId, status: "completed" });
  expect(message?.headers["webhook-id"]).toMatch(/^evt_/);
  expect(message?.headers["webhook-signature"], "the account has no secret").toBeUndefined();
});

test("it is signed with the secret of the account's endpoint, which is told as well", async () => {
  const { key, accountId } = await given();
  const { body: endpoint } = await stage.manage("POST", `/accounts/${accountId}/webhooks`, {
    body: { url: receiver.url, events: ["task.failed"] },
  });
  expectStatus(await storyboard({ key }, `${receiver.url}/mine`), 200);
  latest().status = "failed";
  expectStatus(await callBack(stage.gateway as TestGateway, latest()), 200);
  await receivedMessages(2);
  expect(receiver.received.map(({ url }) => url).sort()).toEqual(["/hook", "/hook/mine"]);
  for (const { body, headers } of receiver.received)
    expect(new Webhook(endpoint.secret).verify(body, headers as Record<string, string>)).toMatchObject({
      type: "task.failed",
    });
  expect(new Set(receiver.ids()).size).toBe(1);
});

test("a customer's server that fails is told again, with the same id", async () => {
  const { key } = await given();
  receiver.say(answer(500));
  expectStatus(await storyboard({ key }, receiver.url), 200);
  latest().status = "completed";
  await callBack(stage.gateway as TestGateway, latest());
  await receivedMessages();
  receiver.say(answer(200));
  await receivedMessages(2);
  expect(new Set(receiver.ids()).size).toBe(1);
});

test("what went to a request's address is listed, and sent again by hand", async () => {
  const { key, accountId } = await given();
  const deliveries = `/accounts/${accountId}/webhooks/callback/deliveries`;
  expect((await stage.manage("GET", deliveries)).body.data).toEqual([]);
  expectStatus(await storyboard({ key }, `${receiver.url}?order=8`), 200);
  latest().status = "completed";
  await callBack(stage.gateway as TestGateway, latest());
  await receivedMessages();
  const read = async () => (await stage.manage("GET", deliveries)).body.data;
  await until(async () => (await read())[0].status === "delivered", "the delivery to end");
  const [delivery] = await read();
  expect(delivery).toMatchObject({
    ...{ webhook_id: "callback", url: `${receiver.url}?order=8`, type: "task.completed", attempts: 1 },
    ...{ id: receiver.ids()[0], response_status: 200 },
  });
  expectStatus(await stage.manage("POST", `${deliveries}/${delivery.id}/redeliver`), 200);
  await receivedMessages(2);
  expect(new Set(receiver.ids()).size).toBe(1);
  const other = await stage.givenAccount(10);
  for (const path of [`/accounts/${other}/webhooks/callback/deliveries/${delivery.id}/redeliver`])
    expectStatus(await stage.manage("POST", path), 404);
  expectStatus(await stage.manage("GET", "/accounts/nobody-at-all/webhooks/callback/deliveries"), 404);
});

test("an unknown outcome that its callback charges is told with its video", async () => {
  const { key } = await given();
  upstream.behave({ create: "reset" });
  expectStatus(await storyboard({ key }, receiver.url), 502);
  latest().status = "completed";
  expectStatus(await callBack(stage.gateway as TestGateway, latest()), 200);
  const [message] = await receivedMessages();
  expect(message?.body.data).toMatchObject({ task_id: latest().taskId, video_url: expect.any(String) });
});

// Guarantee: no video for nothing.
test("a late task that the balance does not cover is not told", async () => {
  const { key, accountId } = await given();
  upstream.behave({ create: "reset" });
  expectStatus(await storyboard({ key }, receiver.url), 502);
  const late = latest();
  const { body } = await stage.manage("GET", `/accounts/${accountId}/tasks?limit=1`);
  await stage.manage("POST", `/tasks/${body.data[0].request_id}/release`, { body: {} });
  const adjustment = { amount: -9990, reason: "spent elsewhere", reference: "elsewhere" };
  expectStatus(await stage.manage("POST", `/accounts/${accountId}/adjustments`, { body: adjustment }), 201);
  late.status = "completed";
  expectStatus(await callBack(stage.gateway, late), 200);
  upstream.behave({});
  await stage.manage("POST", `/accounts/${accountId}/grants`, { body: { credits: 500, reference: "more" } });
  expectStatus(await storyboard({ key }, receiver.url), 200);
  latest().status = "completed";
  expectStatus(await callBack(stage.gateway, latest()), 200);
  await receivedMessages();
  const ids = receiver.received.map((one) => JSON.parse(one.body).data.task_id);
  expect(ids, "the later one alone").toEqual([latest().taskId]);
});

test("an address that leads inside, or that cannot be called, is refused before anything is held", async () => {
  const { key, accountId } = await given();
  const before = upstream.tasks.length;
  const long = `https://customer.example/${"a".repeat(2048)}`;
  for (const url of [
    "https://10.0.0.1/done",
    "https://[fd00:ec2::254]/",
    "https://user:pw@customer.example/",
    long,
    ...innerAddresses(["10.0.0.1"]).map((host) => `https://${host}/done`),
  ]) {
    const reply = await storyboard({ key }, url);
    expectStatus(reply, 400, url);
    expect(reply.body.details).toMatchObject([
      { path: "/callBackUrl", message: expect.stringMatching(/^callBackUrl must /) },
    ]);
  }
  expect(upstream.tasks.length).toBe(before);
  const { body } = await stage.manage("GET", `/accounts/${accountId}`);
  expect(body).toMatchObject({ balance: 10_000, held: 0, total_requests: 0 });
});

test("with callbacks: all every endpoint takes one, of an origin that the account has registered", async () => {
  const { key, accountId } = await given();
  const generate = (callBackUrl: unknown) =>
    stage.gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt: "A boat", callBackUrl } });
  const refused = await generate(receiver.url);
  expectStatus(refused, 400);
  expect(refused.body.error).toContain(
    "callBackUrl must have the origin of a webhook endpoint of this account",
  );
  for (const wrong of [7, "nonsense", "ftp://customer.example/"]) expectStatus(await generate(wrong), 400);
  await stage.manage("POST", `/accounts/${accountId}/webhooks`, {
    body: { url: `${receiver.url}/registered`, events: ["task.failed"] },
  });
  // It would be called at another address: half a surrogate pair has no UTF-8.
  expectStatus(await generate(`${receiver.url}/\ud800`), 400);
  expectStatus(await generate(null), 200);
  expect(latest().callBackUrl).toBeUndefined();
  expectStatus(await generate(`${receiver.url}/other`), 200);
  latest().status = "completed";
  expectStatus(await callBack(stage.gateway as TestGateway, latest()), 200);
  const [message] = await receivedMessages();
  expect(message).toMatchObject({ url: "/hook/other", body: { type: "task.completed" } });
  expect(message?.headers["webhook-signature"]).toMatch(/^v1,/);
  const quote = (callBackUrl: unknown) =>
    stage.manage("POST", "/prices/quote", {
      body: { endpoint: "gen2/text-to-video", body: { prompt: "A boat", callBackUrl } },
    });
  expect(await quote(`${receiver.url}/other`), "its price is quoted").toMatchObject({
    status: 200,
    body: { price: 10 },
  });
  expect(await quote(7)).toMatchObject({ status: 400, body: { errors: [{ path: "/body/callBackUrl" }] } });
});

test("with any_origin every endpoint takes one of an origin that nobody has registered, and no inner address", async () => {
  const webhooks = { publicUrl: PUBLIC_URL, callbacks: "all" as const, anyOrigin: true };
  const open = await givenWebhookStage({
    redisUrl: redis.url,
    upstreamUrl: upstream.url,
    config: { webhooks },
  });
  try {
    const { key } = await given();
    const generate = (callBackUrl: string) =>
      open.gateway.request("POST", TEXT_TO_VIDEO, { key, body: { prompt: "A boat", callBackUrl } });
    expectStatus(await generate("https://10.0.0.1/"), 400);
    expectStatus(await generate(`${receiver.url}/other`), 200);
    latest().status = "completed";
    expectStatus(await callBack(open.gateway as TestGateway, latest()), 200);
    const [message] = await receivedMessages();
    expect(message).toMatchObject({ url: "/hook/other", body: { type: "task.completed" } });
  } finally {
    await open.stop();
  }
});
