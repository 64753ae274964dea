import { Webhook } from "standardwebhooks";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { readEndpoint, rotateSecret } from "../../src/operations/webhooks/endpoints.ts";
import { cliActor } from "../../src/records/actor.ts";
import { requestName } from "../../src/records/names.ts";
import { requestOf } from "../../src/records/records.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { webhookRules } from "../../src/webhooks/operator-rules.ts";
import { partitionFor } from "../support/audit.ts";
import { limitsOf, until } from "../support/gateway.ts";
import { innerAddresses } from "../support/inner-addresses.ts";
import { givenRedis, type TestRedis } from "../support/store-stage.ts";
import {
  answer,
  finishTask,
  givenEndpoint,
  givenKnownEndpoint,
  givenReceiver,
  givenWebhookStage,
  type Received,
  type Receiver,
} from "../support/webhook-stage.ts";

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
beforeEach(async () => {
  receiver = await givenReceiver();
});
afterEach(() => receiver.stop());

const verified = (secret: string, { body, headers }: Received) =>
  new Webhook(secret).verify(body, headers as Record<string, string>);
const poll = (taskId: string, key: string) =>
  stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });

test("a completed task is told once, signed, in the envelope of its poll", async () => {
  const { key, secret, deliveries } = await givenEndpoint(stage, receiver.url);
  const taskId = await finishTask(stage.gateway, key);
  await until(() => receiver.received.length > 0, "the message");
  const [message] = receiver.received as [Received];
  const polled = await poll(taskId, key);
  const timestamp = expect.stringMatching(/^\d{4}-.*Z$/);
  expect(verified(secret, message)).toEqual({ type: "task.completed", timestamp, ...polled.body });
  await poll(taskId, key);
  await until(async () => (await deliveries())[0].status === "delivered");
  expect(await deliveries()).toMatchObject([
    { id: message.headers["webhook-id"], type: "task.completed", attempts: 1, response_status: 200 },
  ]);
  expect(receiver.received).toHaveLength(1);
});

/** The request of a task's message, as the store has it: a poll from the receiver could end the task itself. */
async function storedStateOf(accountId: string, webhookId: unknown): Promise<string | undefined> {
  const [, requestId = ""] = /^evt_(req_\w+?)_task_/.exec(String(webhookId)) ?? [];
  const partition = await partitionFor(redis.client, accountId);
  return requestOf(await redis.client.get(requestName(partition, requestId))).state;
}

// Guarantee: settle first, then tell.
test("a poll from inside the receiver shows the end, 200 of 200; the slot is free, and a refund is booked", async () => {
  const { key, accountId, deliveries } = await givenEndpoint(stage, receiver.url);
  const seen: { stored: string | undefined; status: string; balance: number; active: number | undefined }[] =
    [];
  receiver.say(async (response, { body, headers }) => {
    const content = JSON.parse(body);
    const stored = await storedStateOf(accountId, headers["webhook-id"]);
    const polled = await poll(content.data.task_id, key);
    const credits = await stage.gateway.request("GET", "/api/v1/credits", { key });
    seen.push({
      stored,
      status: `${content.type} ${polled.body.data.status}`,
      balance: credits.body.data.balance,
      active: limitsOf(polled).active,
    });
    response.end();
  });
  const balance = (await stage.gateway.request("GET", "/api/v1/credits", { key })).body.data.balance;
  for (let at = 0; at < 200; at += 10) {
    const batch = Array.from({ length: 10 }, () =>
      stage.gateway.request("POST", "/api/v1/gen2/text-to-video", {
        key,
        body: { prompt: "[sandbox: fail]" },
      }),
    );
    const ids = (await Promise.all(batch)).map(({ body }) => body.data.task_id as string);
    await Promise.all(ids.map((taskId) => poll(taskId, key)));
    await until(() => seen.length === at + 10, `message ${at + 10}`);
    expect(seen.at(-1)).toEqual({ stored: "finished", status: "task.failed failed", balance, active: 0 });
  }
  for (const { response_ms: tookMs } of await deliveries()) expect(tookMs).toBeGreaterThan(0);
  const shown = new Set(seen.map(({ stored, status }) => `${stored} ${status}`));
  expect(shown).toEqual(new Set(["finished task.failed failed"]));
});

// Guarantee: receivers refuse what is more than five minutes off, so one gateway's wrong clock must not sign.
test("a message of a gateway whose own clock is ten minutes slow is accepted", async () => {
  const { key, secret } = await givenEndpoint(stage, receiver.url);
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() - 600_000 });
  try {
    await finishTask(stage.gateway, key);
    await until(() => receiver.received.length > 0, "the message");
  } finally {
    vi.useRealTimers();
  }
  expect(verified(secret, receiver.received[0]!)).toMatchObject({ type: "task.completed" });
});

test("an endpoint gets only the events that it wants", async () => {
  const { key } = await givenEndpoint(stage, receiver.url, ["task.failed"]);
  await finishTask(stage.gateway, key);
  const failed = await finishTask(stage.gateway, key, "[sandbox: fail]");
  await until(() => receiver.received.length > 0, "the message");
  expect(receiver.received.map(({ body }) => JSON.parse(body).data.task_id)).toEqual([failed]);
});

test("a failed try is repeated under the same webhook-id, with a signature of its own time", async () => {
  const { key, secret, ended } = await givenEndpoint(stage, receiver.url);
  receiver.say((response, received) =>
    answer(receiver.received.length < 3 ? 500 : 204, {}, "not now")(response, received),
  );
  await finishTask(stage.gateway, key);
  await until(() => receiver.received.length === 3, "three tries");
  expect(new Set(receiver.ids()).size).toBe(1);
  for (const message of receiver.received) verified(secret, message);
  expect(await ended(receiver.ids()[0]!)).toMatchObject({
    status: "delivered",
    attempts: 3,
    response_status: 204,
  });
});

test("after the last retry a delivery has failed, with the answer; by hand it is sent again", async () => {
  const { key, path, ended } = await givenEndpoint(stage, receiver.url);
  receiver.say(answer(503, {}, "closed for lunch".padEnd(2000, "!")));
  await finishTask(stage.gateway, key);
  await until(() => receiver.received.length === 4, "all tries");
  const [id] = receiver.ids() as [string];
  expect(await ended(id)).toMatchObject({
    ...{
      status: "failed",
      attempts: 4,
      response_status: 503,
      response: "closed for lunch".padEnd(1000, "!"),
    },
    next_attempt_at: null,
  });
  receiver.say(answer(200, {}, "thanks"));
  const again = await stage.manage("POST", `${path}/deliveries/${id}/redeliver`);
  expect(again.body).toMatchObject({ id, status: "waiting", attempts: 4 });
  const { body: audit } = await stage.manage("GET", "/audit?limit=1");
  expect(audit.data).toMatchObject([{ action: "webhook.redeliver", after: { event_id: id } }]);
  await until(() => receiver.received.length === 5, "one more");
  expect(receiver.ids().at(-1)).toBe(id);
  expect(await ended(id)).toMatchObject({ status: "delivered", attempts: 5, response: "thanks" });
});

// Guarantee: nobody is left with a secret that a rotation at the same time has replaced.
test("of two rotations that have read the same endpoint one is refused", async () => {
  const { accountId, id } = await givenEndpoint(stage, receiver.url);
  const nodes = oneNode(redis.client);
  const endpoint = await readEndpoint(nodes, accountId, id);
  const rules = webhookRules(stage.gateway.config.webhooks)!;
  const rotate = () => rotateSecret(nodes, endpoint, 0, cliActor(), rules);
  await rotate();
  await expect(rotate()).rejects.toMatchObject({ code: "stale" });
});

// Guarantee: a rotation that is repeated, since its answer was lost, leaves receivers with a secret that they know.
test("after rotations all secrets of the overlap verify; with no overlap only the new one", async () => {
  const { secret, path } = await givenEndpoint(stage, receiver.url);
  const rotate = async (body: object) =>
    (await stage.manage("POST", `${path}/rotate-secret`, { body })).body.secret;
  const lost = await rotate({});
  const second = await rotate({});
  await stage.manage("POST", `${path}/test`);
  await until(() => receiver.received.length === 1);
  for (const one of [secret, lost, second]) verified(one, receiver.received[0]!);
  const third = await rotate({ overlap: "0s" });
  await stage.manage("POST", `${path}/test`);
  await until(() => receiver.received.length === 2);
  expect(verified(third, receiver.received[1]!)).toMatchObject({ type: "webhook.test" });
  for (const one of [secret, lost, second]) expect(() => verified(one, receiver.received[1]!)).toThrow();
});

test("secrets are sealed in the store, and no answer but the first has one", async () => {
  const { secret, path, accountId } = await givenEndpoint(stage, receiver.url);
  const stored = await Promise.all(
    (await redis.client.keys("tg:{*}:webhook:we_*")).map((name) => redis.client.hgetall(name)),
  );
  expect(JSON.stringify(stored)).not.toContain(secret.replace("whsec_", ""));
  for (const read of [path, `/accounts/${accountId}/webhooks`])
    expect(JSON.stringify((await stage.manage("GET", read)).body)).not.toContain("whsec_");
  const { body } = await stage.manage("GET", "/audit?limit=5");
  expect(JSON.stringify(body)).toContain("webhook.create");
  expect(JSON.stringify(body)).not.toMatch(/whsec_|secret"/);
});

test("a disabled endpoint gets nothing until it is enabled; what waited goes out then", async () => {
  const { key, path, read } = await givenEndpoint(stage, receiver.url);
  receiver.say(answer(500, { "retry-after": "2" }));
  await finishTask(stage.gateway, key);
  await until(() => receiver.received.length === 1);
  await stage.manage("PATCH", path, { body: { status: "disabled" } });
  expect(await read()).toMatchObject({ status: "disabled", disabled_reason: "operator", waiting: 1 });
  expect((await stage.manage("POST", `${path}/test`)).body).toMatchObject({ code: "webhook_disabled" });
  await finishTask(stage.gateway, key);
  receiver.say(answer(200));
  await stage.manage("PATCH", path, { body: { status: "enabled" } });
  await until(() => receiver.received.length === 2, "what waited");
  expect(new Set(receiver.ids()).size).toBe(1);
  await until(async () => (await read()).waiting === 0);
  expect(await read()).toMatchObject({ status: "enabled", disabled_reason: null });
});

test("an endpoint is deleted with what waits and what is being sent", async () => {
  const { key, path, accountId } = await givenKnownEndpoint(stage, receiver);
  receiver.say(() => undefined);
  for (let task = 0; task < 6; task++) await finishTask(stage.gateway, key);
  await until(() => receiver.received.length === 4, "four under way");
  expect((await stage.manage("DELETE", path)).body).toMatchObject({ deleted: true });
  expect((await stage.manage("GET", path)).status).toBe(404);
  expect((await stage.manage("GET", `/accounts/${accountId}/webhooks`)).body.data).toEqual([]);
  expect(receiver.mostUnderWay()).toBe(4);
});

/** Another account of the same partition: names of endpoints do not tell whose they are. */
async function givenNeighbour(accountId: string): Promise<string> {
  const partition = await partitionFor(redis.client, accountId);
  let neighbour = accountId;
  for (let nth = 0; neighbour === accountId; nth++) {
    const other = `${accountId}-${nth}`;
    if ((await partitionFor(redis.client, other)) === partition) neighbour = other;
  }
  await stage.manage("POST", "/accounts", { body: { account_id: neighbour } });
  return neighbour;
}

test("refusals say what is wrong", async () => {
  const { accountId, path } = await givenEndpoint(stage, receiver.url);
  const register = (url: string, account = accountId) =>
    stage.manage("POST", `/accounts/${account}/webhooks`, { body: { url, events: ["task.failed"] } });
  expect(await register("https://10.0.0.1/")).toMatchObject({ status: 400, body: { code: "invalid" } });
  expect(await register("ftp://example.com/")).toMatchObject({ status: 400 });
  for (const host of innerAddresses(["10.0.0.1"]))
    expect((await register(`https://${host}/`)).status, host).toBe(400);
  expect(await register("https://example.com/", "nobody")).toMatchObject({ status: 404 });
  for (let more = 0; more < 9; more++) expect((await register("https://example.com/")).status).toBe(201);
  expect(await register("https://example.com/")).toMatchObject({
    status: 409,
    body: { code: "too_many_webhooks" },
  });
  const other = await givenNeighbour(accountId);
  const foreign = path.replace(accountId, other);
  for (const [method, more] of [
    ["GET", ""],
    ["PATCH", ""],
    ["POST", "/test"],
    ["POST", "/rotate-secret"],
    ["GET", "/deliveries"],
    ["DELETE", ""],
  ] as const) {
    const body = method === "PATCH" ? { label: "mine" } : undefined;
    expect((await stage.manage(method, foreign + more, { body })).status, method + more).toBe(404);
  }
  await stage.manage("PATCH", `/accounts/${other}`, { body: { status: "closed" } });
  expect(await register("https://example.com/", other)).toMatchObject({
    ...{ status: 409, body: { code: "account_closed" } },
  });
  const reader = await stage.givenToken(["accounts:read"]);
  expect((await stage.manage("GET", path, { token: reader })).status).toBe(403);
});
