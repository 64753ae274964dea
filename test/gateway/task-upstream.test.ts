import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { renameSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { requestName } from "../../src/records/names.ts";
import { makeDue, openRequests, partitionFor, readLedger, refunded } from "../support/audit.ts";
import { givenGateway, type Reply, send, type TestGateway, until } from "../support/gateway.ts";
import { type Sections, startGatewayProcess } from "../support/processes.ts";
import { generate, givenKey, givenRedis, ready, type TestRedis } from "../support/store-stage.ts";

let redis: TestRedis;
/** Resources that each test has begun; ended in reverse. */
const begun: (() => Promise<unknown>)[] = [];
beforeAll(async () => {
  redis = await givenRedis();
});
afterEach(async () => {
  for (const end of begun.splice(0).reverse()) await end();
});
afterAll(() => redis.stop());

interface SeenRequest {
  method: string;
  path: string;
  host: string;
  authorization: string | undefined;
}

/** An upstream that knows its own tasks, and says of any other that there is none. */
async function givenUpstream({ path = "", hanging = false } = {}) {
  const requests: SeenRequest[] = [];
  const made = new Map<string, string>();
  const server = createServer((request, response) => {
    request.resume();
    const { method = "", url = "", headers } = request;
    requests.push({ method, path: url, host: headers.host ?? "", authorization: headers.authorization });
    const say = (status: number, body: object): void => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    const at = url.startsWith(`${path}/api/v1/`) ? url.slice(path.length) : "";
    if (method === "POST" && at !== "") {
      // By chance, not by port: the system may give a later upstream the port of an earlier one, and the store is the same.
      const taskId = `made_${randomUUID()}`;
      made.set(taskId, "processing");
      return say(200, { code: 200, msg: "success", data: { task_id: taskId } });
    }
    const taskId = at.replace("/api/v1/tasks/", "");
    const status = made.get(taskId);
    if (status === undefined) return say(404, { code: 404, msg: "Task not found", error: "Task not found" });
    if (upstream.hanging) return;
    const video_url = "https://videos.example/v.mp4";
    const data = { task_id: taskId, status, video_url, created_at: "2026-01-01T00:00:00Z" };
    say(200, { code: 200, msg: "success", data });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  begun.push(async () => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  const upstream = {
    url: `http://127.0.0.1:${port}${path}`,
    /** The upstream by another name. */
    otherUrl: `http://localhost:${port}${path}`,
    requests,
    hanging,
    polls: (taskId: string): SeenRequest[] => requests.filter((one) => one.path.endsWith(`/tasks/${taskId}`)),
    complete: (taskId: string): unknown => made.set(taskId, "completed"),
  };
  return upstream;
}

type Settings = NonNullable<NonNullable<Parameters<typeof givenGateway>[0]>["config"]>;
const SWEEPING = { sweepIntervalMs: 10, pollIntervalMs: 100 };

/** A gateway that stands for a restart with another address: it has the store of the one before, and nothing else. */
async function givenGatewayAt(
  upstream: NonNullable<Settings["upstream"]> & { url: string },
  tasks: Settings["tasks"] = {},
): Promise<TestGateway> {
  const config: Settings = {
    upstream: { apiKey: "key-of-a", ...upstream },
    tasks: { cacheMs: 0, pollIntervalMs: 3_600_000, ...tasks },
  };
  const gateway = await givenGateway({ redisUrl: redis.url, upstreamUrl: upstream.url, config });
  begun.push(gateway.stop);
  await ready(gateway);
  return gateway;
}

interface Made {
  key: IssuedKey;
  taskId: string;
}

async function givenTask(gateway: Pick<TestGateway, "request">): Promise<Made> {
  const key = await givenKey(redis.client);
  const { status, body } = await generate(gateway, key);
  expect({ status, body }).toMatchObject({ status: 200 });
  return { key, taskId: body.data.task_id };
}

const poll = (gateway: Pick<TestGateway, "request">, { key, taskId }: Made): Promise<Reply> =>
  gateway.request("GET", `/api/v1/tasks/${taskId}`, { key: key.key });

const slots = async ({ key }: Made): Promise<number> => (await readLedger(redis.client, key)).slots.length;

async function expectCharged({ key }: Made): Promise<void> {
  const ledger = await readLedger(redis.client, key);
  expect(ledger).toMatchObject({ balance: 990, totalUsed: 10 });
  expect(refunded(ledger)).toEqual([]);
}

async function sample(gateway: TestGateway, name: string): Promise<number> {
  const [line] = await gateway.metric(name);
  return Number(line?.split(" ").at(-1) ?? Number.NaN);
}

/** A gateway process whose upstream stands in its file, to be changed while it runs. */
async function givenLiveGateway(sections: (url: string) => Sections, url: string) {
  const gateway = await startGatewayProcess({
    redisUrl: redis.url,
    upstreamUrl: "",
    env: { UPSTREAM_API_KEY: "key-of-a" },
    config: sections(url),
  });
  begun.push(gateway.stop);
  return {
    request: (method: string, path: string, request: Parameters<TestGateway["request"]>[2] = {}) =>
      send(gateway.url, method, path, request),
    async change(next: string): Promise<void> {
      const store = { journal: join(dirname(gateway.configFile), "journal") };
      writeFileSync(`${gateway.configFile}.new`, JSON.stringify({ ...sections(next), store }));
      renameSync(`${gateway.configFile}.new`, gateway.configFile);
      const changed = () => gateway.logs().some(({ msg }) => msg === "a new configuration is in force");
      await until(changed, "the new address");
    },
  };
}

const LIVE_TASKS = { cache: "0s", sweep_interval: "10ms", poll_interval: "100ms" };

// Guarantee: a change of the address loses no task that runs, and refunds none.
test.each([
  ["", ""],
  ["/v1/secret-a", "/v1/secret-b"],
])(
  "after a live change of upstream.url, tasks are asked for where they were made (paths '%s')",
  async (a, b) => {
    const [old, next] = [await givenUpstream({ path: a }), await givenUpstream({ path: b })];
    const gateway = await givenLiveGateway((url) => ({ upstream: { url }, tasks: LIVE_TASKS }), old.url);
    const [polled, unpolled] = [await givenTask(gateway), await givenTask(gateway)];
    await gateway.change(next.url);
    const later = await givenTask(gateway);
    expect(
      next.requests.filter(({ method }) => method === "POST"),
      "new ones are made there",
    ).toHaveLength(1);
    next.complete(later.taskId);

    const before = old.polls(unpolled.taskId).length;
    await until(
      () => old.polls(unpolled.taskId).length > before + 3,
      "the sweeper to ask at the old address",
    );
    expect((await poll(gateway, polled)).body).toMatchObject({ code: 200, data: { status: "processing" } });
    for (const { taskId } of [polled, unpolled]) old.complete(taskId);
    expect((await poll(gateway, polled)).body.data.status).toBe("completed");
    await until(async () => (await slots(unpolled)) === 0, "the sweeper to see its end");
    for (const task of [polled, unpolled]) {
      await expectCharged(task);
      expect(next.polls(task.taskId)).toEqual([]);
    }
  },
);

test("after a restart with another address, tasks are asked for where they were made", async () => {
  const [old, next] = [await givenUpstream(), await givenUpstream()];
  const first = await givenGatewayAt({ url: old.url });
  const [polled, unpolled] = [await givenTask(first), await givenTask(first)];
  await first.stop();
  const second = await givenGatewayAt({ url: next.url }, SWEEPING);
  await makeDue(redis.client, unpolled.key.accountId, {});
  expect((await poll(second, polled)).body.data.status).toBe("processing");
  for (const { taskId } of [polled, unpolled]) old.complete(taskId);
  expect((await poll(second, polled)).body.data.status).toBe("completed");
  await until(async () => (await slots(unpolled)) === 0, "the sweeper to see its end");
  for (const task of [polled, unpolled]) await expectCharged(task);
  expect(next.requests).toEqual([]);
});

// Guarantee: a credential is never shown to anybody but the upstream that it is for.
test("with another credential, a task of the old upstream is not asked for, is counted, and does not end", async () => {
  const [old, next] = [await givenUpstream(), await givenUpstream()];
  const first = await givenGatewayAt({ url: old.url }, { maxAgeMs: 60_000 });
  const task = await givenTask(first);
  await first.stop();
  const second = await givenGatewayAt({ url: next.url, apiKey: "key-of-b" }, SWEEPING);
  const reply = await poll(second, task);
  expect({ status: reply.status, retryAfter: reply.body.retryAfter }).toEqual({ status: 502, retryAfter: 5 });
  await makeDue(redis.client, task.key.accountId, {});
  const swept = 'tollgate_sweeper_items_total{kind="task",outcome="unroutable"}';
  await until(async () => (await sample(second, swept)) > 0, "the sweeper to come to it");
  expect(await sample(second, "tollgate_upstream_unroutable_polls_total")).toBeGreaterThanOrEqual(2);
  const lines = second.logs.filter((line) => line.includes("cannot be asked for"));
  expect(lines).toHaveLength(1);
  expect(lines[0]).toContain(old.url);
  expect(await slots(task)).toBe(1);
  await expectCharged(task);
  expect(next.requests).toEqual([]);
  expect(old.polls(task.taskId)).toEqual([]);

  await until(async () => {
    await makeDue(redis.client, task.key.accountId, { bound_at: String(Date.now() - 3_600_000) });
    return (await slots(task)) === 0;
  }, "its end at twice its maximum age, after a tenth of it");
  expect(await sample(second, "tollgate_tasks_ended_unanswered_total")).toBe(1);
});

test("with the previous credential, the old upstream's tasks go on, each side with its own", async () => {
  const [old, next] = [await givenUpstream(), await givenUpstream()];
  const first = await givenGatewayAt({ url: old.url });
  const task = await givenTask(first);
  await first.stop();
  const previous = { previousUrl: old.url, previousApiKey: "key-of-a" };
  const second = await givenGatewayAt({ url: next.url, apiKey: "key-of-b", ...previous });
  const later = await givenTask(second);
  old.complete(task.taskId);
  expect((await poll(second, task)).body.data.status).toBe("completed");
  expect((await poll(second, later)).body.data.status).toBe("processing");
  const credentials = ({ requests }: typeof old) =>
    new Set(requests.map(({ authorization }) => authorization));
  expect(credentials(old)).toEqual(new Set(["Bearer key-of-a"]));
  expect(credentials(next)).toEqual(new Set(["Bearer key-of-b"]));
});

test("an upstream that has moved is asked at its new address, also with another key", async () => {
  const moved = await givenUpstream();
  const first = await givenGatewayAt({ url: moved.url });
  const task = await givenTask(first);
  await first.stop();
  const second = await givenGatewayAt({ url: moved.otherUrl, apiKey: "rotated", replaces: [moved.url] });
  expect((await poll(second, task)).body.data.status).toBe("processing");
  expect(moved.polls(task.taskId)).toMatchObject([
    { host: moved.otherUrl.slice("http://".length), authorization: "Bearer rotated" },
  ]);
});

// Guarantee: one dead provider takes no other's tasks with it.
test("an old upstream that hangs holds up no task of the present one", async () => {
  const [old, next] = [await givenUpstream({ hanging: true }), await givenUpstream()];
  const first = await givenGatewayAt({ url: old.url });
  const dead = await Promise.all(Array.from({ length: 8 }, () => givenTask(first)));
  await first.stop();
  const timeouts = { headersTimeoutMs: 60_000, totalTimeoutMs: 60_000 };
  const second = await givenGatewayAt({ url: next.url, ...timeouts }, SWEEPING);
  for (const { key } of dead) await makeDue(redis.client, key.accountId, {});
  const pollCount = () => old.requests.filter(({ method }) => method === "GET").length;
  await until(() => pollCount() === 4, "all questions that it may have at a time");
  const task = await givenTask(second);
  next.complete(task.taskId);
  await until(async () => (await slots(task)) === 0, "the sweeper to see its end");
  expect(pollCount()).toBe(4);
});

test("what a task keeps of its upstream holds no secret: neither the key nor the path of the address", async () => {
  const upstream = await givenUpstream({ path: "/v1/path-secret" });
  const gateway = await givenGatewayAt({ url: upstream.url });
  const task = await givenTask(gateway);
  const { accountId } = task.key;
  const [requestId = ""] = await openRequests(redis.client, accountId);
  const name = requestName(await partitionFor(redis.client, accountId), requestId);
  const record = await redis.client.get(name);
  expect(record).toContain(new URL(upstream.url).origin);
  expect(record).not.toMatch(/path-secret|key-of-a/);
});
