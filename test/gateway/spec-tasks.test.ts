import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { claimName, readClaim } from "../../src/records/names.ts";
import { expectStatus, givenGateway, limitsOf, type TestGateway, until } from "../support/gateway.ts";
import { asking, BOAT, consumption, TEXT_TO_VIDEO } from "./spec-stage.ts";

let gateway: TestGateway;
/** Asks the upstream at each poll. */
let uncached: TestGateway;
beforeAll(async () => {
  gateway = await givenGateway();
  uncached = await givenGateway({ generator: gateway.generator, config: { tasks: { cacheMs: 0 } } });
});
afterAll(async () => {
  await uncached.stop();
  await gateway.stop();
});

async function givenTask(key: IssuedKey, steering = "duration=1h", at = uncached): Promise<string> {
  const body = { prompt: `a boat [sandbox: ${steering.replace("1h", "3600s")}]` };
  const reply = await asking(at)("POST", TEXT_TO_VIDEO, { key: key.key, body });
  expectStatus(reply, 200);
  return reply.body.data.task_id;
}
const poll = (at: TestGateway, { key }: { key: string }, id: string) =>
  asking(at)("GET", `/api/v1/tasks/${id}`, { key });
const pollsOf = (id: string): number =>
  gateway.generator.requests.filter((request) => request.path === `/api/v1/tasks/${id}`).length;

describe("whose task it is", () => {
  test("unknown, another account's and impossible ids are one and the same 404", async () => {
    const owner = await gateway.givenKey();
    const stranger = await gateway.givenKey();
    const id = await givenTask(owner);
    expectStatus(await poll(uncached, owner, id), 200);
    const ids = [id, "task_unknown", "a%2Fb", "x".repeat(201), "%00", "%2e%2e%2fcredits", "%zz"];
    const bodies = [];
    for (const other of ids) {
      const reply = await poll(uncached, stranger, other);
      expectStatus(reply, 404);
      bodies.push({ ...reply.body, request_id: "" });
    }
    const expected = { code: 404, msg: "Task not found", error: "Task not found", request_id: "" };
    expect(bodies).toEqual(Array(ids.length).fill(expected));
    expect(pollsOf(id)).toBe(1);
  });

  test("a cached task is not another account's either", async () => {
    const owner = await gateway.givenKey();
    const id = await givenTask(owner, "duration=1h", gateway);
    await poll(gateway, owner, id);
    expectStatus(await poll(gateway, await gateway.givenKey(), id), 404);
  });

  test("any key of the account may poll; the headers are those of the key that polls", async () => {
    const creator = await gateway.givenKey({ limits: { rate_limit: 5, max_concurrent: 2 } });
    const other = await gateway.givenKey({
      accountId: creator.accountId,
      limits: { rate_limit: 7, max_concurrent: 3 },
    });
    const id = await givenTask(creator, "duration=0");
    const reply = await poll(uncached, other, id);
    expect(reply.body.data).toMatchObject({ task_id: id, status: "completed" });
    expect(limitsOf(reply)).toMatchObject({ limit: 7, remaining: 7, maxConcurrent: 3, active: 0 });
    expect(limitsOf(await poll(uncached, creator, id))).toMatchObject({ limit: 5, remaining: 4, active: 0 });
  });
});

describe("the task as the customer sees it", () => {
  test("the fields of a task, as the upstream gives them", async () => {
    const key = await gateway.givenKey();
    const id = await givenTask(key, "duration=0");
    const { data } = (await poll(uncached, key, id)).body;
    expect(data).toMatchObject({ task_id: id, status: "completed", progress: 100 });
    for (const name of ["video_url", "thumbnail_url"]) expect(URL.canParse(data[name])).toBe(true);
    for (const name of ["created_at", "completed_at"])
      expect(Number.isNaN(Date.parse(data[name]))).toBe(false);
    const failed = await givenTask(key, "duration=0 fail");
    const upstream = await fetch(`${gateway.generator.url}/api/v1/tasks/${failed}`, {
      headers: { authorization: "Bearer x" },
    });
    const upstreamTask = (await upstream.json()) as { data: object };
    expect((await poll(uncached, key, failed)).body.data).toEqual(upstreamTask.data);
  });

  // Guarantee: what is known of a task id by then may be of another account's task.
  test("not at all once it was forgotten while the upstream was asked", async () => {
    const key = await gateway.givenKey();
    const id = await givenTask(key, "duration=1h poll-delay=2s");
    const { requestId } = readClaim((await gateway.redis.get(claimName(id))) ?? "");
    const names = await gateway.redis.keys(`tg:*:task:${id}`);
    names.push(...(await gateway.redis.keys(`tg:*:request:${requestId}`)));
    const waitingPoll = poll(uncached, key, id);
    await until(() => pollsOf(id) === 1, "the upstream to be asked");
    await gateway.redis.del(...names);
    expect(await waitingPoll).toMatchObject({ status: 404, body: { code: 404 } });
  });

  test("pending at first, and polls count toward nothing", async () => {
    const key = await gateway.givenKey({ limits: { rate_limit: 1, max_concurrent: 1, daily_limit: 1 } });
    const id = await givenTask(key, "duration=1h start-delay=1800s");
    for (let n = 0; n < 5; n++) {
      const reply = await poll(uncached, key, id);
      expect(reply.body.data).toMatchObject({ status: "pending" });
      expect(limitsOf(reply)).toMatchObject({ limit: 1, remaining: 0, maxConcurrent: 1, active: 1 });
    }
    expect(await consumption(uncached, key)).toMatchObject({ totalRequests: 1, balance: 990 });
  });
});

describe("the cache of five seconds", () => {
  test("a second poll makes no upstream call, on this gateway or another", async () => {
    const key = await gateway.givenKey();
    const id = await givenTask(key, "duration=1h", gateway);
    const neighbour = await givenGateway({ generator: gateway.generator });
    const first = await poll(gateway, key, id);
    for (const at of [gateway, neighbour, gateway])
      expect((await poll(at, key, id)).body.data).toEqual(first.body.data);
    expect(pollsOf(id)).toBe(1);
    await neighbour.stop();
  });

  // Guarantee: what failed is repeated by this process for its retryAfter, and is never in the store for others.
  test("errors are never in the cache that gateways share", async () => {
    const key = await gateway.givenKey();
    const id = await givenTask(key, "duration=1h poll-status=500", gateway);
    const neighbour = await givenGateway({ generator: gateway.generator });
    for (const [at, polls] of [
      [gateway, 1],
      [gateway, 1],
      [neighbour, 2],
      [neighbour, 2],
    ] as const) {
      const reply = await poll(at, key, id);
      expect(reply).toMatchObject({ status: 502, body: { code: 502 } });
      expect(reply.body.retryAfter).toBeGreaterThanOrEqual(1);
      expect(reply.body.retryAfter).toBeLessThanOrEqual(5);
      expect(pollsOf(id)).toBe(polls);
    }
    await neighbour.stop();
  });

  test("an answer served from the cache has today's numbers", async () => {
    const key = await gateway.givenKey({ limits: { rate_limit: 10, max_concurrent: 5 } });
    const id = await givenTask(key, "duration=1h", gateway);
    expect(limitsOf(await poll(gateway, key, id))).toMatchObject({ remaining: 9, active: 1 });
    await givenTask(key, "duration=1h", gateway);
    expect(limitsOf(await poll(gateway, key, id))).toMatchObject({ remaining: 8, active: 2 });
  });

  test("50 simultaneous polls make one upstream call, and all get its answer", async () => {
    const key = await gateway.givenKey();
    const second = await gateway.givenKey({ accountId: key.accountId, limits: { rate_limit: 3 } });
    // Its slot is the second key's, while the first key's poll leads.
    const id = await givenTask(second, "duration=0 poll-delay=400ms", gateway);
    const replies = await Promise.all(
      Array.from({ length: 50 }, (_, n) => poll(gateway, n % 2 === 0 ? key : second, id)),
    );
    for (const [n, reply] of replies.entries()) {
      expect(reply.body.data).toMatchObject({ status: "completed" });
      expect(limitsOf(reply)).toMatchObject({ limit: n % 2 === 0 ? 1000 : 3, active: 0 });
    }
    expect(pollsOf(id)).toBe(1);
  });
});

describe("the end of a task", () => {
  test("completed frees the slot in the headers of the same answer, and keeps the charge", async () => {
    const key = await gateway.givenKey({ limits: { rate_limit: 10, max_concurrent: 1 } });
    const id = await givenTask(key, "duration=0");
    expect((await asking(uncached)("POST", TEXT_TO_VIDEO, { key: key.key, body: BOAT })).body.code).toBe(
      2002,
    );
    const reply = await poll(uncached, key, id);
    expect(reply.body.data.status).toBe("completed");
    expect(limitsOf(reply)).toMatchObject({ active: 0, remaining: 9 });
    expect(await consumption(uncached, key)).toMatchObject({ balance: 990, held: 0, totalUsed: 10 });
    expectStatus(await asking(uncached)("POST", TEXT_TO_VIDEO, { key: key.key, body: BOAT }), 200);
  });

  test("failed refunds exactly once, however often and by whom it is polled", async () => {
    const key = await gateway.givenKey();
    const id = await givenTask(key, "duration=0 fail");
    expect(await consumption(uncached, key)).toMatchObject({ balance: 990, totalUsed: 10, active: 1 });
    const replies = await Promise.all([uncached, gateway, uncached, gateway].map((at) => poll(at, key, id)));
    for (let n = 0; n < 3; n++) replies.push(await poll(uncached, key, id));
    for (const reply of replies) {
      expect(reply.body.data.status).toBe("failed");
      expect(limitsOf(reply)).toMatchObject({ active: 0 });
    }
    expect(await consumption(uncached, key)).toMatchObject({
      balance: 1000,
      totalUsed: 0,
      totalRequests: 1,
      transactions: 3,
    });
  });

  const LATER: [what: string, changes: Parameters<TestGateway["generator"]["behave"]>[0]][] = [
    ["404", { pollStatus: 404 }],
    ["500", { pollStatus: 500 }],
    ["429", { pollStatus: 429 }],
    ["401", { pollStatus: 401 }],
    ["garbage", { pollFault: "garbage" }],
    ["a reset", { pollFault: "reset" }],
  ];

  test.each(["completed", "failed"])("%s stays so, whatever the upstream says later", async (end) => {
    const own = await givenGateway({ config: { tasks: { cacheMs: 0 } } });
    const key = await own.givenKey();
    const id = await givenTask(key, end === "failed" ? "duration=0 fail" : "duration=0", own);
    const first = await poll(own, key, id);
    expect(first.body.data.status).toBe(end);
    const after = await consumption(own, key);
    for (const [what, changes] of LATER) {
      own.generator.reset();
      own.generator.behave(changes);
      const again = await poll(own, key, id);
      expect(again.body.data, what).toEqual(first.body.data);
      expect(limitsOf(again).active).toBe(0);
    }
    expect(await consumption(own, key)).toEqual(after);
    await own.stop();
  });

  test("completed does not become processing or failed again", async () => {
    const created_at = new Date().toISOString();
    const video_url = "https://videos.example/v.mp4";
    let upstreamTask: object = { status: "completed", progress: 100, video_url, created_at };
    const fake = createServer((request, response) => {
      request.resume();
      const made = { task_id: `fake_${randomUUID()}` };
      const data =
        request.method === "POST" ? made : { task_id: request.url?.split("/").at(-1), ...upstreamTask };
      response.end(JSON.stringify({ code: 200, msg: "success", data }));
    });
    await new Promise<void>((done) => fake.listen(0, "127.0.0.1", done));
    const { port } = fake.address() as AddressInfo;
    const own = await givenGateway({
      generator: gateway.generator,
      upstreamUrl: `http://127.0.0.1:${port}`,
      config: { tasks: { cacheMs: 0 } },
    });
    const key = await own.givenKey();
    const id = await givenTask(key, "duration=1h", own);
    expect((await poll(own, key, id)).body.data).toMatchObject({ task_id: id, status: "completed" });
    for (const status of ["pending", "processing", "failed"]) {
      upstreamTask = { status, progress: 1, created_at };
      const reply = await poll(own, key, id);
      expect(reply.body.data).toEqual({
        task_id: id,
        status: "completed",
        progress: 100,
        video_url,
        created_at,
      });
      expect(limitsOf(reply).active).toBe(0);
    }
    expect(await consumption(own, key)).toMatchObject({ balance: 990, totalUsed: 10 });
    await own.stop();
    fake.close();
    fake.closeAllConnections();
  });
});

describe("polls that the upstream does not answer well", () => {
  const CASES: [steering: string, status: number, code: number][] = [
    ["poll-status=400", 400, 400],
    ["poll-status=401", 502, 502],
    ["poll-status=402", 502, 502],
    ["poll-status=403", 502, 502],
    ["poll-status=404", 502, 502],
    ["poll-status=405", 502, 502],
    ["poll-status=407", 502, 502],
    ["poll-status=408", 502, 502],
    ["poll-status=409", 409, 409],
    ["poll-status=422", 422, 422],
    ["poll-status=429 poll-retry-after=3", 429, 2004],
    ["poll-status=500", 502, 502],
    ["poll-status=502", 502, 502],
    ["poll-status=503", 502, 502],
    ["poll-status=504", 502, 502],
    ["poll-code=401", 502, 502],
    ["poll-code=404", 502, 502],
    ["poll-code=429", 429, 2004],
    ["poll-code=500", 502, 502],
    ["poll-code=1001", 502, 1001],
    ["poll-fault=reset", 502, 502],
    ["poll-fault=truncate", 502, 502],
    ["poll-fault=garbage", 502, 502],
  ];

  test.each(CASES)("%s: HTTP %d, code %d; slot and charge stay", async (steering, status, code) => {
    const key = await gateway.givenKey();
    const id = await givenTask(key, `duration=0 ${steering}`);
    const reply = await poll(uncached, key, id);
    expectStatus(reply, status);
    expect(reply.body.code).toBe(code);
    if (code === 2004) expect(reply.body.retryAfter).toBe(10);
    // The task is charged and may be running: only where the upstream refuses it for good, no program should ask again.
    const isFinal = [400, 409, 422, 1001].includes(code);
    expect(reply.headers.get("x-should-retry")).toBe(isFinal ? "false" : null);
    expect(reply.body.error).not.toMatch(/API key|Invalid API|credential/i);
    expect(limitsOf(reply)).toMatchObject({ active: 1, remaining: 999 });
    expect(await consumption(uncached, key)).toMatchObject({ balance: 990, totalUsed: 10, active: 1 });
  });

  test.each(["hang", "drip"])("%s: 504 in good time", async (fault) => {
    const own = await givenGateway({
      generator: gateway.generator,
      config: { tasks: { cacheMs: 0 }, upstream: { headersTimeoutMs: 400, totalTimeoutMs: 600 } },
    });
    const key = await own.givenKey();
    // Made by the one that waits long enough for a generation.
    const id = await givenTask(key, `poll-fault=${fault}`);
    const reply = await poll(own, key, id);
    expectStatus(reply, 504);
    expect(reply.body.code).toBe(504);
    expect(limitsOf(reply)).toMatchObject({ active: 1 });
    await own.stop();
  });
});
