import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { readAccount } from "../../src/operations/accounts/accounts.ts";
import { oneNode } from "../../src/redis/store-facts.ts";
import {
  expectStatus,
  givenGateway,
  limitsOf,
  type Reply,
  type TestGateway,
  until,
} from "../support/gateway.ts";
import { holdPort } from "../support/held-port.ts";
import { asking, consumption, expectUnconsumed, TEXT_TO_VIDEO } from "./spec-stage.ts";

let gateway: TestGateway;
/** Meets the upstream that does not answer; the other one waits as long as it takes. */
let impatient: TestGateway;
let ask: ReturnType<typeof asking>;
beforeAll(async () => {
  gateway = await givenGateway();
  impatient = await givenGateway({
    generator: gateway.generator,
    config: { upstream: { headersTimeoutMs: 500, totalTimeoutMs: 800 } },
  });
  ask = asking(gateway);
});
afterAll(async () => {
  await impatient.stop();
  await gateway.stop();
});

/** By the gateway that gives up, if the upstream is to be given up. */
const generateWith = (key: string, steering: string) =>
  asking(/hang|drip/.test(steering) ? impatient : gateway)("POST", TEXT_TO_VIDEO, {
    key,
    body: steered(steering),
  });

const steered = (steering: string) => ({ prompt: `a boat [sandbox: ${steering}]` });
/** The window and the day allow two, so that the second shows what the first has left. */
const givenKey = (at = gateway) =>
  at.givenKey({ credits: 20, limits: { rate_limit: 2, max_concurrent: 1, daily_limit: 1 } });

/** A text of the upstream about its own keys and accounts, which no customer may see. */
const PRIVATE = "Invalid_API_key_of_the_gateway";

describe("a definite no gives hold, slot and day back at once; only the window entry stays", () => {
  const PASSED_ON = "blames the request: passed on";
  const OURS = "blames the gateway: never passed on";
  const cases: [steering: string, status: number, code: number, what: string][] = [
    ["status=400", 400, 400, PASSED_ON],
    ["status=409", 409, 409, PASSED_ON],
    ["status=422", 422, 422, PASSED_ON],
    ["status=422 code=1001", 422, 1001, PASSED_ON],
    ["code=400", 400, 400, PASSED_ON],
    ["code=422", 422, 422, PASSED_ON],
    ["code=1001", 502, 1001, PASSED_ON],
    ["code=500", 502, 500, PASSED_ON],
    ["code=2002", 502, 502, PASSED_ON],
    ["status=422 code=2003", 422, 422, PASSED_ON],
    ["code=2001", 429, 2004, "is limiting, with a customer's code: never passed on as the customer's limit"],
    ["status=400 code=2004", 429, 2004, "is limiting, as a gateway like this one says it"],
    ...[401, 402, 403, 404, 405, 407].flatMap((status): [string, number, number, string][] => [
      [`status=${status}`, 502, 502, OURS],
      [`code=${status}`, 502, 502, OURS],
    ]),
    ["status=503", 502, 502, "unreachable"],
  ];

  test.each(cases)("%s: HTTP %d, code %d (%s)", async (steering, status, code, what) => {
    const issued = await givenKey();
    const reply = await ask("POST", TEXT_TO_VIDEO, {
      key: issued.key,
      body: steered(`${steering} message=${PRIVATE}`),
    });
    expectStatus(reply, status);
    expect(reply.body.code).toBe(code);
    if (what === PASSED_ON) expect(reply.body.error).toBe(PRIVATE);
    else expect(JSON.stringify(reply.body)).not.toContain(PRIVATE);
    // SDKs send a 409, a 429 or a 5xx again by themselves: a definite no would be met again, place after place.
    const isDefinite = what === PASSED_ON || what === OURS;
    expect(reply.headers.get("x-should-retry")).toBe(isDefinite ? "false" : null);
    expect(limitsOf(reply)).toMatchObject({ limit: 2, remaining: 1, maxConcurrent: 1, active: 0 });
    expect(await consumption(gateway, issued)).toMatchObject({
      balance: 20,
      held: 0,
      totalUsed: 0,
      transactions: 1,
    });
    await expectUnconsumed(gateway, issued, 1);
  });

  test.each([
    ["", 10],
    ["retry-after=3", 10],
    ["retry-after=10", 10],
    ["retry-after=17", 17],
    ["retry-after=30", 30],
    ["retry-after=3600", 30],
  ])("429 %s: 2004 with retryAfter %d", async (wait, retryAfter) => {
    for (const limiting of ["status=429", "code=429"]) {
      const issued = await givenKey();
      const reply = await ask("POST", TEXT_TO_VIDEO, {
        key: issued.key,
        body: steered(`${limiting} ${wait}`),
      });
      expectStatus(reply, 429);
      expect(reply.body).toMatchObject({ code: 2004, retryAfter });
      expect(limitsOf(reply)).toMatchObject({ remaining: 1, active: 0 });
      await expectUnconsumed(gateway, issued, 1);
    }
  });

  test("a refusal of the gateway is logged as an error and counted", async () => {
    const count = async () =>
      Number((await gateway.metric("tollgate_upstream_refused_gateway_total"))[0]?.split(" ")[1]);
    const before = await count();
    const { key } = await gateway.givenKey();
    const reply = await ask("POST", TEXT_TO_VIDEO, { key, body: steered("status=401") });
    expect(await count()).toBe(before + 1);
    const id = reply.headers.get("x-request-id");
    const lines = gateway.logs.map((line) => JSON.parse(line)).filter((line) => line.request_id === id);
    expect(lines).toContainEqual(expect.objectContaining({ level: "error" }));
  });
});

test("an upstream that cannot be reached: 502 with retryAfter, nothing kept, nothing charged", async () => {
  const { port, release } = await holdPort();
  onTestFinished(release);
  const own = await givenGateway({ generator: gateway.generator, upstreamUrl: `http://127.0.0.1:${port}` });
  onTestFinished(() => own.stop());
  const issued = await givenKey(own);
  const reply = await asking(own)("POST", TEXT_TO_VIDEO, { key: issued.key, body: steered("") });
  expectStatus(reply, 502);
  expect(reply.body).toMatchObject({ code: 502, error: expect.stringContaining("nothing is charged") });
  expect(limitsOf(reply)).toMatchObject({ remaining: 1, active: 0 });
  await expectUnconsumed(gateway, issued, 1);
});

describe("an unknown outcome keeps hold and slot until the due time, and charges nothing", () => {
  const expectKept = async (issued: Awaited<ReturnType<typeof givenKey>>, reply: Reply) => {
    expect(reply.body.error).toMatch(/nothing is charged unless the task is confirmed/);
    expect(reply.headers.get("x-should-retry")).toBe("false");
    expect(limitsOf(reply)).toMatchObject({ limit: 2, remaining: 1, maxConcurrent: 1, active: 1 });
    expect(await consumption(gateway, issued)).toEqual({
      balance: 10,
      held: 10,
      totalUsed: 0,
      totalRequests: 1,
      transactions: 1,
      remaining: 1,
      active: 1,
    });
  };

  test.each([
    ["status=500", 502],
    ["status=502", 502],
    ["status=504", 502],
    ["reset", 502],
    ["truncate", 502],
    ["garbage", 502],
    ["no-task-id", 502],
    ["task-id=a/b", 502],
    ["hang", 504],
    ["drip", 504],
  ])("%s: %d", async (steering, status) => {
    const issued = await givenKey();
    const reply = await generateWith(issued.key, steering);
    expect(reply).toMatchObject({ status, body: { code: status } });
    await expectKept(issued, reply);
  });

  test("a POST is sent once, whatever becomes of it", async () => {
    const { key } = await gateway.givenKey();
    for (const steering of ["reset", "status=500", "status=503", "hang", "garbage"]) {
      const sentBefore = gateway.generator.requests.length;
      await generateWith(key, steering);
      expect(gateway.generator.requests.length - sentBefore, steering).toBe(1);
    }
  });

  // Guarantee: a reused upstream task id never charges the wrong order, nor shows one account's task to another.
  test("a task id that another account has already: 502, the first owner keeps it", async () => {
    const first = await gateway.givenKey();
    const made = await ask("POST", TEXT_TO_VIDEO, { key: first.key, body: steered("duration=3600s") });
    const id = made.body.data.task_id;
    const issued = await givenKey();
    const reply = await ask("POST", TEXT_TO_VIDEO, { key: issued.key, body: steered(`task-id=${id}`) });
    expectStatus(reply, 502);
    await expectKept(issued, reply);
    expectStatus(await ask("GET", `/api/v1/tasks/${id}`, { key: issued.key }), 404);
    expectStatus(await ask("GET", `/api/v1/tasks/${id}`, { key: first.key }), 200);
    expect(await consumption(gateway, first)).toMatchObject({ balance: 990, active: 1 });
  });
});

test("a client that goes away after admission leaves a bound task, found again by its Idempotency-Key", async () => {
  const issued = await givenKey();
  const gone = new AbortController();
  const sentBefore = gateway.generator.requests.length;
  const headers = {
    authorization: `Bearer ${issued.key}`,
    "content-type": "application/json",
    "idempotency-key": issued.keyId,
  };
  const body = JSON.stringify(steered("delay=2s"));
  const lost = fetch(gateway.url + TEXT_TO_VIDEO, { method: "POST", headers, body, signal: gone.signal });
  const outcome = expect(lost).rejects.toThrow();
  await until(() => gateway.generator.requests.length === sentBefore + 1, "the upstream request");
  gone.abort();
  await outcome;
  const used = async () => (await readAccount(oneNode(gateway.redis), issued.accountId)).totalUsed;
  await until(async () => (await used()) === 10, "the charge");
  const again = await ask("POST", TEXT_TO_VIDEO, {
    key: issued.key,
    body: steered("delay=2s"),
    headers: { "idempotency-key": issued.keyId },
  });
  expectStatus(again, 200);
  expect(again.headers.get("idempotency-replayed")).toBe("true");
  expect(await consumption(gateway, issued)).toMatchObject({
    balance: 10,
    held: 0,
    totalRequests: 1,
    active: 1,
  });
});
