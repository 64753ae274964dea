import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { consumed, expectSound, readLedger } from "../support/audit.ts";
import { expectStatus, until } from "../support/gateway.ts";
import { generate, givenStage, type Stage, sent, settled } from "../support/store-stage.ts";

/** On a busy machine, too, only what a test strikes is late. */
const STORE = { commandTimeoutMs: 1500 };

let stage: Stage;
beforeAll(async () => {
  stage = await givenStage({ behaviour: { durationMs: 60_000 }, config: { store: STORE } });
});
afterAll(() => stage.stop());
beforeEach(async () => {
  await generate(stage.gateway, await stage.givenKey());
  stage.gateway.generator.requests.length = 0;
});

const KINDS = ["drop_reply", "reset_after", "reset_before"] as const;

/** Stops Redis while the upstream works on a request, and lets it go on once the customer has his answer. */
async function stoppedMeanwhile<T>(request: Promise<T>): Promise<T> {
  await until(() => sent(stage.gateway).length === 1, "the request to reach the upstream");
  stage.redis.pause();
  return request.finally(() => stage.redis.resume());
}

describe("a customer whose task exists hears of it and is charged once, whatever becomes of BIND", () => {
  test.each(KINDS)("%s", async (kind) => {
    const key = await stage.givenKey();
    const { struck } = stage.proxy.strike(kind, "bind");
    const reply = await generate(stage.gateway, key);
    expectStatus(reply, 200);
    await struck;
    await settled(stage.gateway);
    await expectChargedOnce(key, reply.body.data.task_id);
  });

  test("Redis stops before the upstream answers", async () => {
    const key = await stage.givenKey();
    const reply = await stoppedMeanwhile(generate(stage.gateway, key, "[sandbox: delay=2s]"));
    expectStatus(reply, 200);
    const line = stage.gateway.logs.map((text) => JSON.parse(text)).findLast(({ price }) => price === 10);
    expect(line, "not charged yet").toMatchObject({ key_id: key.keyId, outcome: "charge_waits" });
    await settled(stage.gateway);
    await expectChargedOnce(key, reply.body.data.task_id);
  });

  test("the connection is gone and the breaker open before the upstream answers", async () => {
    const key = await stage.givenKey();
    const pending = generate(stage.gateway, key, "[sandbox: delay=2s]");
    await until(() => sent(stage.gateway).length === 1, "the request to reach the upstream");
    await stage.proxy.steer({ connections: "refuse" });
    const reply = await pending.finally(() => stage.proxy.heal());
    expectStatus(reply, 200);
    await settled(stage.gateway);
    await expectChargedOnce(key, reply.body.data.task_id);
  });

  test("its Idempotency-Key replays it afterwards", async () => {
    const key = await stage.givenKey();
    const headers = { "idempotency-key": "lost-bind" };
    const { struck } = stage.proxy.strike("reset_after", "bind");
    const reply = await generate(stage.gateway, key, "A paper boat", headers);
    await struck;
    await settled(stage.gateway);
    const replay = await generate(stage.gateway, key, "A paper boat", headers);
    expect(replay.headers.get("idempotency-replayed")).toBe("true");
    expect(replay.body.data.task_id).toBe(reply.body.data.task_id);
    await expectChargedOnce(key, reply.body.data.task_id);
  });

  async function expectChargedOnce(key: { key: string; keyId: string; accountId: string }, taskId: string) {
    const ledger = await readLedger(stage.redis.client, key);
    expectSound(ledger);
    expect(ledger).toMatchObject({
      balance: 990,
      held: 0,
      totalUsed: 10,
      totalRequests: 1,
      windowEntries: 1,
    });
    expect(consumed(ledger).map((entry) => entry.taskId)).toEqual([taskId]);
    expect(ledger.slots, "the slot follows the task").toHaveLength(1);
    const poll = await stage.gateway.request("GET", `/api/v1/tasks/${taskId}`, { key: key.key });
    expect(poll.body.data.task_id).toBe(taskId);
  }
});

// Guarantee: no video is handed out before its charge is certain.
test("the video of a task that is completed at once comes after its charge", async () => {
  const video_url = "https://v.example/1";
  let made = 0;
  const server = createServer((request, response) => {
    const taskId =
      request.method === "GET" ? request.url!.split("/").at(-1) : `at-once-${made++}-${Date.now()}`;
    const task = { task_id: taskId, status: "completed", video_url, completed_at: "2026-01-01T00:00:00Z" };
    request.resume().on("end", () => response.end(JSON.stringify({ code: 200, msg: "success", data: task })));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const upstreamUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const own = await givenStage({ upstreamUrl, config: { store: STORE } });
  try {
    const key = await own.givenKey();
    const charged = await generate(own.gateway, key);
    expect(charged.body.data).toMatchObject({ status: "completed", video_url });
    expect(consumed(await readLedger(own.redis.client, key))).toHaveLength(1);

    const { struck } = own.proxy.strike("reset_before", "bind");
    const waiting = await generate(own.gateway, key);
    await struck;
    expectStatus(waiting, 200);
    expect(waiting.body.data).toEqual({ task_id: expect.any(String), status: "processing" });
    await settled(own.gateway);
    const poll = await own.gateway.request("GET", `/api/v1/tasks/${waiting.body.data.task_id}`, {
      key: key.key,
    });
    expect(poll.body.data).toMatchObject({ status: "completed", video_url });
    expect(consumed(await readLedger(own.redis.client, key))).toHaveLength(2);
  } finally {
    await own.stop();
    server.closeAllConnections();
    server.close();
  }
});

describe("what the upstream refused is given back, whatever becomes of VOID", () => {
  const REFUSED = "[sandbox: status=400 delay=2s]";

  test.each(KINDS)("%s", async (kind) => {
    const key = await stage.givenKey();
    const { struck } = stage.proxy.strike(kind, "void");
    expectStatus(await generate(stage.gateway, key, "[sandbox: status=400]"), 400);
    await struck;
    await expectGivenBack(key);
  });

  test("Redis stops before the upstream answers", async () => {
    const key = await stage.givenKey();
    expectStatus(await stoppedMeanwhile(generate(stage.gateway, key, REFUSED)), 400);
    await expectGivenBack(key);
  });

  async function expectGivenBack(key: { key: string; keyId: string; accountId: string }) {
    await settled(stage.gateway);
    const ledger = await readLedger(stage.redis.client, key);
    expectSound(ledger);
    expect(ledger).toMatchObject({ balance: 1000, held: 0, totalUsed: 0, slots: [], dayCount: 0 });
    expect(consumed(ledger)).toEqual([]);
  }
});
