import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { claimName } from "../../src/records/names.ts";
import { expectSound, makeDue, readLedger, refunded } from "../support/audit.ts";
import { givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { generate, givenKey, givenRedis, ready, type TestRedis } from "../support/store-stage.ts";
import { changeRequest, readRequest } from "../support/stored-requests.ts";

const MAX_AGE_MS = 7_200_000;

type Say = (response: ServerResponse, taskId: string) => void;
const json =
  (status: number, body: object, headers = {}): Say =>
  (response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
  };
const refusing = (status: number, headers = {}): Say =>
  json(status, { code: status, msg: "No", error: "No" }, headers);
const task =
  (status: string, withId = true): Say =>
  (response, taskId) => {
    const ended = { video_url: "https://videos.example/v.mp4", created_at: "2026-01-01T00:00:00Z" };
    const data = { ...(withId ? { task_id: taskId } : {}), status, ...ended };
    json(200, { code: 200, msg: "success", data })(response, taskId);
  };
const html404: Say = (response) => {
  response.writeHead(404, { "content-type": "text/html" }).end("<html>404 page not found</html>");
};
const reset: Say = (response) => void response.destroy();
const silence: Say = () => undefined;

/** Answers that say nothing about the task: what they are, and how the sweeper counts them. */
const NO_ANSWERS: [what: string, say: Say, counted: string][] = [
  ["429", refusing(429, { "retry-after": "1" }), "rate_limited"],
  ["401", refusing(401), "refused_gateway"],
  ["500", refusing(500), "failed"],
  ["a reset", reset, "failed"],
  ["no answer in time", silence, "timed_out"],
  ["an ingress' 404", html404, "misrouted"],
  ["completed, but without task_id", task("completed", false), "failed"],
];

let redis: TestRedis;
let say: Say = task("processing");
/** Polls by task id. */
const polls = new Map<string, number>();
const upstream = createServer((request, response) => {
  request.resume();
  if (request.method === "POST") {
    return json(200, { code: 200, msg: "success", data: { task_id: `made_${randomUUID()}` } })(response, "");
  }
  const taskId = request.url?.split("/").at(-1) ?? "";
  polls.set(taskId, (polls.get(taskId) ?? 0) + 1);
  say(response, taskId);
});
let gateway: TestGateway;
beforeAll(async () => {
  redis = await givenRedis();
  upstream.listen(0, "127.0.0.1");
  await once(upstream, "listening");
});
afterEach(async () => {
  await gateway.stop();
  say = task("processing");
});
afterAll(async () => {
  upstream.close();
  upstream.closeAllConnections();
  await redis.stop();
});

type Options = NonNullable<NonNullable<Parameters<typeof givenGateway>[0]>["config"]>["tasks"];

/** Only what a test makes due is asked for, unless it says otherwise. */
async function given(tasks: Options = {}, upstreamSays: Say = say): Promise<void> {
  gateway = await givenGateway({
    redisUrl: redis.url,
    upstreamUrl: `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`,
    config: {
      // Short only where the upstream is to be given up.
      ...(upstreamSays === silence && { upstream: { headersTimeoutMs: 1000, totalTimeoutMs: 1500 } }),
      tasks: { cacheMs: 0, pollIntervalMs: 3_600_000, maxAgeMs: MAX_AGE_MS, ...tasks },
    },
  });
  await ready(gateway);
}
const SWEEPING = { sweepIntervalMs: 10 };

async function givenTask(): Promise<{ key: IssuedKey; taskId: string }> {
  const key = await givenKey(redis.client);
  const { status, body } = await generate(gateway, key);
  expect({ status, body }).toMatchObject({ status: 200 });
  return { key, taskId: body.data.task_id };
}

/** The sweeper asks for it next, as a task that was bound so long ago. */
const makeDueAt = ({ key }: { key: IssuedKey }, ageMs: number) =>
  makeDue(redis.client, key.accountId, { bound_at: String(Date.now() - ageMs) });

const poll = ({ key, taskId }: { key: IssuedKey; taskId: string }) =>
  gateway.request("GET", `/api/v1/tasks/${taskId}`, { key: key.key });

async function sample(name: string): Promise<number> {
  const [line] = await gateway.metric(name);
  return Number(line?.split(" ").at(-1) ?? 0);
}
const swept = (outcome: string): Promise<number> =>
  sample(`tollgate_sweeper_items_total{kind="task",outcome="${outcome}"}`);

const freed = ({ key }: { key: IssuedKey }): Promise<void> =>
  until(async () => (await readLedger(redis.client, key)).slots.length === 0, "the slot to be free");

async function expectKept({ key }: { key: IssuedKey }): Promise<void> {
  const ledger = await readLedger(redis.client, key);
  expect(ledger).toMatchObject({ balance: 990, totalUsed: 10 });
  expect(ledger.slots).toHaveLength(1);
  expect(refunded(ledger)).toHaveLength(0);
}

async function expectRefunded({ key }: { key: IssuedKey }): Promise<void> {
  const ledger = await readLedger(redis.client, key);
  expectSound(ledger);
  expect(ledger).toMatchObject({ balance: 1000, totalUsed: 0, slots: [] });
  expect(refunded(ledger)).toHaveLength(1);
}

describe("a task beyond its maximum age is refunded on evidence only", () => {
  test.each(NO_ANSWERS)(
    "%s: not ended, and ended well once the upstream answers",
    async (_, silent, counted) => {
      await given(SWEEPING, silent);
      const one = await givenTask();
      say = silent;
      // The first poll after a start is no evidence, however old the task is.
      await makeDueAt(one, 2 * MAX_AGE_MS + 60_000);
      await until(async () => (await swept(counted)) === 1, "the poll to fail");
      await expectKept(one);
      await gateway.stop();

      say = task("completed");
      await given(SWEEPING);
      await makeDueAt(one, 2 * MAX_AGE_MS + 60_000);
      await freed(one);
      expect(refunded(await readLedger(redis.client, one.key))).toHaveLength(0);
      expect(await sample("tollgate_tasks_ended_unanswered_total")).toBe(0);
    },
  );

  test.each<[string, Say]>([
    ["still processing", task("processing")],
    ["refused for good", refusing(410)],
  ])("%s: ended as failed and refunded", async (_, answer) => {
    await given(SWEEPING);
    const one = await givenTask();
    say = answer;
    await makeDueAt(one, MAX_AGE_MS + 60_000);
    await freed(one);
    await expectRefunded(one);
    expect(await sample("tollgate_tasks_ended_unanswered_total")).toBe(0);
  });

  test.each(NO_ANSWERS)("%s until twice that age: ended, refunded, counted and logged", async (_, silent) => {
    await given({ ...SWEEPING, maxAgeMs: 5000 }, silent);
    const one = await givenTask();
    say = silent;
    await until(async () => {
      await makeDueAt(one, 60_000);
      return (await readLedger(redis.client, one.key)).slots.length === 0;
    }, "its end once the upstream was polled for a tenth of that age");
    await expectRefunded(one);
    expect(polls.get(one.taskId), "it was polled before").toBeGreaterThanOrEqual(1);
    await until(async () => (await sample("tollgate_tasks_ended_unanswered_total")) === 1, "the count");
    const lines = gateway.logs.filter((line) => line.includes(one.taskId)).map((line) => JSON.parse(line));
    expect(lines).toContainEqual(expect.objectContaining({ level: "error", why: "unanswered" }));
  });

  test("a customer's poll without an answer leaves its end to the sweeper", async () => {
    await given({ maxAgeMs: 1, sweepIntervalMs: 3_600_000 });
    const one = await givenTask();
    say = refusing(500);
    expect(await poll(one)).toMatchObject({ status: 502, body: { retryAfter: expect.any(Number) } });
    await expectKept(one);
    expect(await sample("tollgate_tasks_ended_unanswered_total")).toBe(0);
  });
});

describe("a 404 without the envelope is not the API's", () => {
  test("polls of customers: 502 with retryAfter, counted and logged, and no step towards gone", async () => {
    await given();
    const one = await givenTask();
    say = html404;
    const reply = await poll(one);
    expect(reply).toMatchObject({ status: 502, body: { code: 502, retryAfter: 5 } });
    expect(JSON.stringify(reply.body)).not.toContain("page not found");
    await expectKept(one);
    expect((await readRequest(redis.client, await requestOf(one))).gone_count).toBeUndefined();
    expect(await sample("tollgate_upstream_misrouted_polls_total")).toBe(1);
    const lines = gateway.logs.map((line) => JSON.parse(line));
    expect(lines).toContainEqual(
      expect.objectContaining({ level: "error", msg: expect.stringContaining("404") }),
    );
  });

  test("the sweeper: however often and long, the task is not ended", async () => {
    await given(SWEEPING);
    const one = await givenTask();
    say = html404;
    const request = await requestOf(one);
    for (let nth = 1; nth <= 4; nth++) {
      // If it counted at all, more than a minute would have passed since the first.
      if ((await readRequest(redis.client, request)).gone_count)
        await changeRequest(redis.client, request, { gone_since: 1 });
      await makeDueAt(one, 0);
      await until(async () => (await swept("misrouted")) === nth, "the question");
    }
    await expectKept(one);
    say = task("completed");
    await makeDueAt(one, 0);
    await freed(one);
  });

  async function requestOf({ taskId }: { taskId: string }): Promise<string> {
    const [requestId] = ((await redis.client.get(claimName(taskId))) ?? "").split(" ");
    const [name = ""] = await redis.client.keys(`tg:*:request:${requestId}`);
    return name;
  }
});

describe("a poll's answer without task_id is no answer about the task", () => {
  test.each(["completed", "failed"])("%s: 502, and nothing is recorded", async (status) => {
    await given();
    const one = await givenTask();
    say = task(status, false);
    expect(await poll(one)).toMatchObject({ status: 502, body: { code: 502, retryAfter: 5 } });
    await expectKept(one);
  });
});

describe("customers who poll do not multiply an outage", () => {
  test.each<[string, Say, status: number, code: number, waitMax: number]>([
    ["500", refusing(500), 502, 502, 5],
    ["401", refusing(401), 502, 502, 5],
    ["429", refusing(429, { "retry-after": "17" }), 429, 2004, 17],
    ["no answer in time", silence, 504, 504, 5],
  ])(
    "%s: the same task is asked for once within its retryAfter",
    async (_, silent, status, code, waitMax) => {
      await given({}, silent);
      const one = await givenTask();
      say = silent;
      for (let nth = 0; nth < 5; nth++) {
        const reply = await poll(one);
        expect(reply).toMatchObject({ status, body: { code } });
        expect(reply.headers.get("retry-after")).toBe(String(reply.body.retryAfter));
        expect(reply.body.retryAfter).toBeGreaterThanOrEqual(1);
        expect(reply.body.retryAfter).toBeLessThanOrEqual(waitMax);
        expect(reply.headers.get("x-concurrent-active"), "the numbers stay true").toBe("1");
      }
      expect(polls.get(one.taskId)).toBe(1);
    },
  );

  test("60 tasks, polled again and again: a dozen questions", async () => {
    await given();
    const key = await givenKey(redis.client);
    const tasks: string[] = [];
    for (let nth = 0; nth < 60; nth++) tasks.push((await generate(gateway, key)).body.data.task_id);
    say = refusing(500);
    for (let round = 0; round < 3; round++) {
      for (const taskId of tasks) expect((await poll({ key, taskId })).status).toBe(502);
    }
    const questions = tasks.reduce((sum, taskId) => sum + (polls.get(taskId) ?? 0), 0);
    // The pause is five seconds; a slow machine may let one or two more through.
    expect(questions).toBeGreaterThanOrEqual(10);
    expect(questions).toBeLessThan(30);
  });

  test("an ended task is answered from the store meanwhile", async () => {
    await given();
    const one = await givenTask();
    say = task("completed");
    expect((await poll(one)).body.data.status).toBe("completed");
    say = refusing(500);
    for (let nth = 0; nth < 3; nth++) expect((await poll(one)).body.data.status).toBe("completed");
    expect(polls.get(one.taskId)).toBe(2);
  });
});
