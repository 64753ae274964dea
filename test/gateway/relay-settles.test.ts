import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { ENVELOPE } from "../../src/upstream/adapters/envelope.ts";
import { expectSound, readLedger, refunded } from "../support/audit.ts";
import type { MadeTask } from "../support/callback-upstream.ts";
import { expectStatus } from "../support/gateway.ts";
import {
  CUSTOMER,
  callBack,
  callbackCounts,
  givenRelayGateway,
  givenRelayStage,
  pathOf,
  type RelayStage,
  storyboard,
} from "../support/relay-stage.ts";
import { TEXT_TO_VIDEO } from "../support/store-stage.ts";

let stage: RelayStage;
beforeAll(async () => {
  stage = await givenRelayStage();
});
afterEach(() => stage.upstream.behave({}));
afterAll(() => stage.stop());

const ledgerOf = (key: Parameters<typeof readLedger>[1]) => readLedger(stage.gateway.redis, key);

// Guarantee: what is priced is what is sent, but for the one address.
test("the upstream gets an address of the gateway in place of the customer's, and nothing else differs", async () => {
  const key = await stage.gateway.givenKey();
  const shots = [
    { Scene: "One", duration: 4.5 },
    { Scene: "Two", duration: 5.5 },
  ];
  const body = { nFrames: "10", shots, aspectRatio: "square", imageUrls: ["https://images.example/a.png"] };
  expectStatus(await storyboard(stage.gateway, key, { ...body, callBackUrl: CUSTOMER }), 200);
  const { body: sent } = stage.latest();
  pathOf(stage.latest());
  expect({ ...sent, callBackUrl: CUSTOMER }).toEqual({ ...body, callBackUrl: CUSTOMER });
  expect(JSON.stringify(sent)).not.toContain("customer.example");
  expectStatus(await storyboard(stage.gateway, key, {}), 200);
  expect(stage.latest().callBackUrl, "without the customer's address there is none").toBeUndefined();
});

// Guarantee: a slot comes back as soon as the upstream says that its task has ended.
test("a callback settles a completed task without a poll of the customer or the sweeper", async () => {
  const key = await stage.gateway.givenKey();
  const { body } = await storyboard(stage.gateway, key);
  expect((await ledgerOf(key)).slots).toHaveLength(1);
  const task = stage.latest();
  task.status = "completed";
  const polls = stage.upstream.polls.length;
  const reply = await callBack(stage.gateway, task);
  expectStatus(reply, 200);
  expect(reply.headers.get("x-ratelimit-limit"), "as every answer of the port").toBe("0");
  expect(await ledgerOf(key)).toMatchObject({ slots: [], held: 0, balance: 850, totalUsed: 150 });
  expect(stage.upstream.polls.slice(polls)).toEqual([task.taskId]);
  const shown = await stage.gateway.request("GET", `/api/v1/tasks/${body.data.task_id}`, { key: key.key });
  expect(shown.body.data).toMatchObject({ status: "completed" });
});

test("a callback about a task in a state that is not known is answered, and not asked for again", async () => {
  const key = await stage.gateway.givenKey();
  expectStatus(await storyboard(stage.gateway, key), 200);
  const task = stage.latest();
  task.status = "halted" as MadeTask["status"];
  expectStatus(await callBack(stage.gateway, task), 200);
  expect((await ledgerOf(key)).slots).toHaveLength(1);
});

test("a callback about a failed task refunds it, once however often it comes", async () => {
  const key = await stage.gateway.givenKey();
  await storyboard(stage.gateway, key);
  const task = stage.latest();
  task.status = "failed";
  const replies = await Promise.all([1, 2, 3].map(() => callBack(stage.gateway, task)));
  for (const reply of replies) expectStatus(reply, 200);
  const ledger = await ledgerOf(key);
  expect(ledger).toMatchObject({ slots: [], balance: 1000 });
  expect(refunded(ledger)).toHaveLength(1);
  expectSound(ledger);
});

// Guarantee: nothing of a callback is believed.
test("a callback that claims another state, or another task, changes nothing", async () => {
  const [key, others] = [await stage.gateway.givenKey(), await stage.gateway.givenKey()];
  await storyboard(stage.gateway, others);
  const other = stage.latest();
  other.status = "failed";
  await storyboard(stage.gateway, key);
  const task = stage.latest();
  const before = [await ledgerOf(key), await ledgerOf(others)];
  for (const data of [
    { task_id: task.taskId, status: "failed" },
    { task_id: other.taskId, status: "completed", video_url: "https://videos.example/v.mp4" },
  ])
    expectStatus(await callBack(stage.gateway, task, { code: 200, msg: "success", data }), 200);
  expectStatus(await stage.gateway.request("POST", pathOf(task), { body: "\0 nonsense" }), 200);
  expect([await ledgerOf(key), await ledgerOf(others)]).toEqual(before);
});

test("a callback of a task of which the upstream says nothing is asked for once more", async () => {
  const key = await stage.gateway.givenKey();
  await storyboard(stage.gateway, key);
  stage.upstream.behave({ isDown: true });
  const reply = await callBack(stage.gateway, stage.latest());
  expectStatus(reply, 503);
  expect(reply.headers.get("retry-after")).toBe("5");
  stage.latest().status = "completed";
  stage.upstream.behave({});
  expectStatus(await callBack(stage.gateway, stage.latest()), 200);
  expect((await ledgerOf(key)).slots).toEqual([]);
  expect(await callbackCounts(stage.gateway)).toMatchObject({ unanswered: 1 });
});

test("with relay: all each generation has an address, and the customer's body needs none", async () => {
  const gateway = await givenRelayGateway(stage.upstream, { config: { webhooks: { relay: "all" } } });
  try {
    const key = await gateway.givenKey();
    const reply = await gateway.request("POST", TEXT_TO_VIDEO, { key: key.key, body: { prompt: "A boat" } });
    expectStatus(reply, 200);
    const task = stage.latest();
    expect(task.body).toEqual({ prompt: "A boat", aspectRatio: "16:9", callBackUrl: task.callBackUrl });
    task.status = "completed";
    expectStatus(await callBack(gateway, task), 200);
    expect((await readLedger(gateway.redis, key)).slots).toEqual([]);
  } finally {
    await gateway.stop();
  }
});

// An upstream that refuses parameters that it does not know would take no generation.
test("an upstream whose adapter reads no callbacks gets no address, of the gateway or of the customer", async () => {
  const { callback: _, ...adapter } = ENVELOPE;
  const dialect = { name: adapter.name, id: "silent", adapter: () => adapter, options: {} };
  const config = { webhooks: { relay: "all" as const }, upstream: { dialect } };
  const gateway = await givenRelayGateway(stage.upstream, { config });
  try {
    const key = await gateway.givenKey();
    for (const more of [{ callBackUrl: CUSTOMER }, {}]) {
      expectStatus(await storyboard(gateway, key, more), 200);
      expect(stage.latest().body).not.toHaveProperty("callBackUrl");
    }
  } finally {
    await gateway.stop();
  }
});

test("without public_url the customer's address goes through, and there are no callbacks here", async () => {
  await storyboard(stage.gateway, await stage.gateway.givenKey());
  const path = pathOf(stage.latest());
  for (const webhooks of [{ publicUrl: undefined }, { secretKey: undefined }] as const) {
    const gateway = await givenRelayGateway(stage.upstream, { config: { webhooks: webhooks as object } });
    try {
      expectStatus(await storyboard(gateway, await gateway.givenKey()), 200);
      expect(stage.latest().callBackUrl).toBe(CUSTOMER);
      expectStatus(await gateway.request("POST", path, { body: {} }), 404);
    } finally {
      await gateway.stop();
    }
  }
});
