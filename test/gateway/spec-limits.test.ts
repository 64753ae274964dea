import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { refusalsOf } from "../../src/operations/accounts/refusals.ts";
import { rotateKey } from "../../src/operations/keys/change-key.ts";
import { readKey } from "../../src/operations/keys/keys.ts";
import { cliActor } from "../../src/records/actor.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import { expectStatus, givenGateway, limitsOf, type TestGateway, until } from "../support/gateway.ts";
import {
  asking,
  BOAT,
  givenTightKey,
  PRO_TEXT_TO_VIDEO,
  recharge,
  setLimits,
  TEXT_TO_VIDEO,
} from "./spec-stage.ts";

let gateway: TestGateway;
let ask: ReturnType<typeof asking>;
beforeAll(async () => {
  gateway = await givenGateway({ config: { server: { unknownKeysPerMinute: 1_000_000 } } });
  ask = asking(gateway);
});
afterAll(() => gateway.stop());

const CREDITS = "/api/v1/credits";

describe("the limits", () => {
  // Guarantee: window (2001), day (2003), slots (2002), credits (402), in this order, and none consumes anything.
  test("each limit is met in the order of checks, and gives way to the next", async () => {
    const issued = await givenTightKey(gateway);
    const generate = () => ask("POST", TEXT_TO_VIDEO, { key: issued.key, body: BOAT });
    expectStatus(await generate(), 200);

    for (let n = 0; n < 3; n++) {
      const limited = await generate();
      expectStatus(limited, 429);
      expect(limited.body).toMatchObject({
        code: 2001,
        msg: expect.stringMatching(/rate limit exceeded.*slow down/i),
      });
      expect(limited.body.retryAfter).toBeLessThanOrEqual(60);
      expect(limited.body.retryAfter).toBeGreaterThan(50);
      expect(limited.headers.get("x-should-retry")).toBeNull();
      expect(limitsOf(limited)).toMatchObject({ limit: 1, remaining: 0, active: 1 });
      expect(limitsOf(limited).reset! * 1000 - Date.now()).toBeLessThanOrEqual(61_000);
    }
    await setLimits(gateway, issued, { rate_limit: 2 });
    for (let n = 0; n < 3; n++) {
      const daily = await generate();
      expectStatus(daily, 429);
      expect(daily.body.code).toBe(2003);
      expect(daily.headers.get("x-should-retry")).toBe("false");
      const toMidnight = (86_400_000 - (Date.now() % 86_400_000)) / 1000;
      expect(Math.abs(((daily.body.retryAfter - toMidnight + 43_200) % 86_400) - 43_200)).toBeLessThan(3);
    }
    await setLimits(gateway, issued, { daily_limit: 2 });
    for (let n = 0; n < 3; n++) {
      const concurrent = await generate();
      expectStatus(concurrent, 429);
      expect(concurrent.body).toMatchObject({ code: 2002, retryAfter: 10 });
      expect(concurrent.headers.get("x-should-retry")).toBeNull();
      expect(limitsOf(concurrent)).toMatchObject({ remaining: 1, maxConcurrent: 1, active: 1 });
    }
    await setLimits(gateway, issued, { max_concurrent: 2 });
    for (let n = 0; n < 3; n++) expect((await generate()).body.code).toBe(402);
    await recharge(gateway, issued, 10);
    const last = await generate();
    expectStatus(last, 200);
    expect(limitsOf(last)).toMatchObject({ limit: 2, remaining: 0, maxConcurrent: 2, active: 2 });
    const { data } = (await ask("GET", CREDITS, { key: issued.key })).body;
    expect(data).toMatchObject({ balance: 0, total_used: 20, total_requests: 2 });
  });

  // Guarantee: a key with a cap never spends more in a month, and whoever set it sees what is left.
  test("a spend cap is met after the slots and before the credits; a failed task gives room back", async () => {
    const limits = { rate_limit: 99, max_concurrent: 1, monthly_credits: 15 };
    const issued = await gateway.givenKey({ credits: 20, limits });
    const generate = (prompt = BOAT.prompt) =>
      ask("POST", TEXT_TO_VIDEO, { key: issued.key, body: { prompt } });
    const spent = async () =>
      (await readKey(oneNode(gateway.redis), issued.keyId, issued.accountId))?.spentThisMonth;
    expect(await spent()).toBe(0);
    const made = await generate("[sandbox: fail] a paper boat");
    expectStatus(made, 200);
    expect(await spent()).toBe(10);
    expect((await generate()).body.code).toBe(2002);
    await setLimits(gateway, issued, { max_concurrent: 9 });
    const capped = await generate();
    expectStatus(capped, 402);
    const text = "Monthly credits of this API key exceeded: this request costs 10, 10 of 15 are used";
    expect(capped.body).toMatchObject({ code: 2006, msg: text, error: text });
    expect(capped.body.retryAfter).toBeUndefined();
    expect(capped.headers.get("x-should-retry")).toBe("false");
    const line = gateway.logs
      .map((one) => JSON.parse(one))
      .findLast(({ outcome }) => outcome === "spend_capped");
    expect(line).toMatchObject({ status: 402, limit: 15, used: 10 });

    // Slowly: a key that polls a hundred times a second is slowed down.
    const afterPoll = async () => {
      await ask("GET", `/api/v1/tasks/${made.body.data.task_id}`, { key: issued.key });
      return spent();
    };
    await expect.poll(afterPoll, { interval: 200, timeout: 30_000 }).toBe(0);
    expectStatus(await generate(), 200);
    await setLimits(gateway, issued, { monthly_credits: 100 });
    expectStatus(await generate(), 200);
    expect((await generate()).body.code).toBe(402);
    expect(await spent()).toBe(20);
  });

  // Guarantee: a new key in place of an old one is no second cap.
  test("what a key has spent counts toward the cap of the key that replaces it", async () => {
    const issued = await gateway.givenKey({ credits: 100, limits: { monthly_credits: 15 } });
    const generate = (key: string) => ask("POST", TEXT_TO_VIDEO, { key, body: BOAT });
    expectStatus(await generate(issued.key), 200);
    const nodes = oneNode(gateway.redis);
    const old = (await readKey(nodes, issued.keyId, issued.accountId))!;
    const fresh = await rotateKey(nodes, old, 0, cliActor());
    expect((await readKey(nodes, fresh.keyId, fresh.accountId))?.spentThisMonth).toBe(10);
    expect((await generate(fresh.key)).body.code).toBe(2006);
  });

  // Guarantee: "why was this refused?" has its answer in the log, also where the refusal came from memory.
  test("the log line of a refusal has the limit, what was used of it and how long to wait", async () => {
    const issued = await givenTightKey(gateway);
    const generate = () => ask("POST", TEXT_TO_VIDEO, { key: issued.key, body: BOAT });
    const lineOf = async (reply: Awaited<ReturnType<typeof generate>>) => {
      const id = String(reply.headers.get("x-request-id"));
      const line = () => gateway.logs.find((one) => one.includes(id));
      await until(() => line() !== undefined);
      return JSON.parse(line()!);
    };
    const admitted = await lineOf(await generate());
    for (const field of ["limit", "used", "balance", "retry_after_seconds"]) {
      expect(admitted).not.toHaveProperty(field);
    }
    for (let n = 0; n < 8; n++) {
      const refused = await generate();
      const retry = refused.body.retryAfter;
      const line = { outcome: "rate_limited", limit: 1, used: 1, retry_after_seconds: retry };
      expect(await lineOf(refused)).toMatchObject(line);
    }
    await setLimits(gateway, issued, { rate_limit: 9, daily_limit: 1 });
    let last = await generate();
    await until(async () => {
      last = await generate();
      return last.body.code !== 2001;
    });
    expect(await lineOf(last)).toMatchObject({ outcome: "daily_limited", limit: 1, used: 1 });
    await setLimits(gateway, issued, { daily_limit: 9 });
    const concurrent = { outcome: "concurrency_limited", limit: 1, used: 1, retry_after_seconds: 10 };
    expect(await lineOf(await generate())).toMatchObject(concurrent);
    await setLimits(gateway, issued, { max_concurrent: 9 });
    const unpaid = { outcome: "insufficient_credits", price: 10, balance: 0 };
    expect(await lineOf(await generate())).toMatchObject(unpaid);
  });

  // Guarantee: refusals that come from memory are counted, too, by the hour; an admitted request is not.
  test("refusals of a key are counted by outcome and hour", async () => {
    const issued = await givenTightKey(gateway);
    const generate = () => ask("POST", TEXT_TO_VIDEO, { key: issued.key, body: BOAT });
    expectStatus(await generate(), 200);
    for (let n = 0; n < 12; n++) expectStatus(await generate(), 429);
    const counted = async () =>
      (await refusalsOf(oneNode(gateway.redis), issued.accountId, Date.now())).hours;
    const sum = async () => (await counted()).reduce((all, { count }) => all + count, 0);
    await until(async () => (await sum()) >= 12);
    // Two rows if the hour has just begun.
    const rows = (await counted()).map(({ keyId, outcome }) => ({ keyId, outcome }));
    expect(new Set(rows.map((row) => JSON.stringify(row)))).toEqual(
      new Set([JSON.stringify({ keyId: issued.keyId, outcome: "rate_limited" })]),
    );
    expect(await sum()).toBe(12);
  });

  test("a key that hammers is refused without a word to the store, with true headers, for a second at the most", async () => {
    const issued = await givenTightKey(gateway);
    const generate = () => ask("POST", TEXT_TO_VIDEO, { key: issued.key, body: BOAT });
    expectStatus(await generate(), 200);
    const calls = async (): Promise<number> => {
      const [line = ""] = await gateway.metric('tollgate_store_call_duration_seconds_count{script="admit"}');
      return Number(line.split(" ")[1]);
    };
    const first = await generate();
    const before = await calls();
    for (let n = 0; n < 40; n++) {
      const again = await generate();
      expect(again.body.code).toBe(2001);
      expect(limitsOf(again)).toEqual(limitsOf(first));
      expect(again.body.retryAfter).toBeGreaterThan(50);
    }
    expect((await calls()) - before).toBeLessThan(20);
    const [refused = ""] = await gateway.metric(
      'tollgate_admissions_total{tier="standard",outcome="rate_limited"}',
    );
    expect(Number(refused.split(" ")[1])).toBeGreaterThanOrEqual(41);
    await setLimits(gateway, issued, { rate_limit: 2, daily_limit: 9, max_concurrent: 9 });
    let last = first;
    await until(async () => {
      last = await generate();
      return last.body.code !== 2001;
    });
    // The memory gave way and not the window: the first request still counts there.
    expect(limitsOf(last)).toMatchObject({ limit: 2, remaining: 1 });
  });

  test("an exhausted key still reads, and its bad body is still 400", async () => {
    const issued = await givenTightKey(gateway);
    const { body } = await ask("POST", TEXT_TO_VIDEO, { key: issued.key, body: BOAT });
    expectStatus(await ask("POST", TEXT_TO_VIDEO, { key: issued.key, body: {} }), 400);
    for (let n = 0; n < 3; n++) {
      expectStatus(await ask("GET", CREDITS, { key: issued.key }), 200);
      expectStatus(await ask("GET", `/api/v1/tasks/${body.data.task_id}`, { key: issued.key }), 200);
    }
  });

  test("the limits of a tier are enforced and shown: standard 20, 3, 500; enterprise 100, 10, 10000", async () => {
    for (const [tier, rate, concurrent, daily] of [
      ["standard", 20, 3, 500],
      ["enterprise", 100, 10, 10_000],
    ] as const) {
      const { key } = await gateway.givenKey({ tier, limits: {} });
      const reply = await ask("GET", CREDITS, { key });
      const limits = { rate_limit: rate, max_concurrent: concurrent, daily_limit: daily };
      expect(reply.body.data).toMatchObject({ tier, limits });
      expect(limitsOf(reply)).toMatchObject({
        limit: rate,
        remaining: rate,
        maxConcurrent: concurrent,
        active: 0,
      });
      for (let n = 0; n < concurrent; n++)
        expectStatus(await ask("POST", TEXT_TO_VIDEO, { key, body: BOAT }), 200);
      expect((await ask("POST", TEXT_TO_VIDEO, { key, body: BOAT })).body.code).toBe(2002);
    }
  });
});

describe("Idempotency-Key", () => {
  test("the same request again is answered from the first, marked, and charged once", async () => {
    const issued = await givenTightKey(gateway);
    const request = { key: issued.key, body: BOAT, headers: { "idempotency-key": randomUUID() } };
    const first = await ask("POST", TEXT_TO_VIDEO, request);
    const again = await ask("POST", TEXT_TO_VIDEO, {
      ...request,
      body: { prompt: BOAT.prompt, aspectRatio: "16:9" },
    });
    expect(first.headers.get("idempotency-replayed")).toBeNull();
    expectStatus(again, 200);
    expect(again.headers.get("idempotency-replayed")).toBe("true");
    expect(again.body.data).toEqual(first.body.data);
    expect((await ask("GET", CREDITS, { key: issued.key })).body.data).toMatchObject({
      balance: 0,
      total_requests: 1,
    });
  });

  test("with another body or path it is 422, before any limit", async () => {
    const issued = await givenTightKey(gateway);
    const headers = { "idempotency-key": randomUUID() };
    await ask("POST", TEXT_TO_VIDEO, { key: issued.key, body: BOAT, headers });
    for (const [path, body] of [
      [TEXT_TO_VIDEO, { prompt: "b" }],
      [PRO_TEXT_TO_VIDEO, BOAT],
    ] as const) {
      const reply = await ask("POST", path, { key: issued.key, body, headers });
      expectStatus(reply, 422);
      expect(reply.body.code).toBe(422);
    }
  });

  test("while the first is in progress it is 409 with retryAfter", async () => {
    const issued = await givenTightKey(gateway);
    const headers = { "idempotency-key": randomUUID() };
    const sentBefore = gateway.generator.requests.length;
    const slow = ask("POST", TEXT_TO_VIDEO, {
      key: issued.key,
      body: { prompt: "[sandbox: delay=3s]" },
      headers,
    });
    await until(() => gateway.generator.requests.length === sentBefore + 1, "the upstream request");
    const reply = await ask("POST", TEXT_TO_VIDEO, {
      key: issued.key,
      body: { prompt: "[sandbox: delay=3s]" },
      headers,
    });
    expectStatus(reply, 409);
    expect(reply.body).toMatchObject({ code: 409, retryAfter: expect.any(Number) });
    expectStatus(await slow, 200);
  });

  test("two accounts may use the same one", async () => {
    const headers = { "idempotency-key": randomUUID() };
    const ids = [];
    for (const { key } of [await gateway.givenKey(), await gateway.givenKey()])
      ids.push((await ask("POST", TEXT_TO_VIDEO, { key, body: BOAT, headers })).body.data.task_id);
    expect(ids[0]).not.toBe(ids[1]);
  });
});
