import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { dueFrom, partitionNames, requestName, taskName } from "../../src/records/names.ts";
import {
  consumed,
  expectSound,
  makeDue,
  openRequests,
  partitionFor,
  readLedger,
  refunded,
} from "../support/audit.ts";
import { expectStatus, givenGateway, type TestGateway, until } from "../support/gateway.ts";
import { generate, givenKey, givenRedis, polled, ready, type TestRedis } from "../support/store-stage.ts";
import { changeRequest, readRequest } from "../support/stored-requests.ts";

/** Sweeps all the time; a task is asked for as soon as it is bound. */
const EAGER = { sweepIntervalMs: 10, pollIntervalMs: 1, cacheMs: 0, sweepPollsPerSecond: 10_000 };

let redis: TestRedis;
let gateway: TestGateway;
beforeAll(async () => {
  redis = await givenRedis();
  gateway = await givenSweeping();
});
afterAll(async () => {
  await gateway.stop();
  await redis.stop();
});

async function givenSweeping(options: Parameters<typeof givenGateway>[0] = {}): Promise<TestGateway> {
  const config = { ...options.config, tasks: { ...EAGER, ...options.config?.tasks } };
  // One upstream for all: each of them takes up any of its tasks.
  const shared = gateway ? { generator: gateway.generator } : {};
  const started = await givenGateway({ redisUrl: redis.url, ...shared, ...options, config });
  await ready(started);
  return started;
}

async function givenTask(on: TestGateway, key: IssuedKey, directive = "duration=0"): Promise<string> {
  const reply = await generate(on, key, `[sandbox: ${directive}]`);
  expectStatus(reply, 200);
  return reply.body.data.task_id;
}

const freed = (key: IssuedKey): Promise<void> =>
  until(async () => (await readLedger(redis.client, key)).slots.length === 0, "the slots to be free");

/** The log says so, once the slot has come back. */
const warned = (taskId: string, why: string): Promise<void> =>
  until(
    () =>
      gateway.logs
        .filter((line) => line.includes(taskId))
        .map((line) => JSON.parse(line))
        .some((line) => line.level === "warn" && line.why === why),
    `a warning that ${taskId} is ${why}`,
  );

const view = async ({ key }: IssuedKey, taskId: string) =>
  (await gateway.request("GET", `/api/v1/tasks/${taskId}`, { key })).body.data;

describe("a task that no client polls is ended all the same", () => {
  test("completed: the slot comes back and the price stays paid", async () => {
    const key = await givenKey(redis.client);
    const taskId = await givenTask(gateway, key);
    await freed(key);
    const ledger = await readLedger(redis.client, key);
    expectSound(ledger);
    expect(ledger).toMatchObject({ balance: 990, totalUsed: 10 });
    expect(polled(gateway, taskId).length).toBeGreaterThan(0);
    expect((await view(key, taskId)).status).toBe("completed");
  });

  test("failed: the slot comes back and the price with it, once", async () => {
    const key = await givenKey(redis.client);
    const taskId = await givenTask(gateway, key, "duration=0 fail");
    await freed(key);
    for (let nth = 0; nth < 3; nth++) expect((await view(key, taskId)).status).toBe("failed");
    const ledger = await readLedger(redis.client, key);
    expectSound(ledger);
    expect(ledger).toMatchObject({ balance: 1000, totalUsed: 0 });
    expect(refunded(ledger)).toHaveLength(1);
  });

  test("beyond the maximum age: ended as failed, refunded, with a warning", async () => {
    const key = await givenKey(redis.client);
    const taskId = await givenTask(gateway, key, "duration=3600s");
    const twoHoursAgo = String(Date.now() - 2 * 3_600_000);
    await makeDue(redis.client, key.accountId, { bound_at: twoHoursAgo });
    await freed(key);
    const ledger = await readLedger(redis.client, key);
    expectSound(ledger);
    expect(refunded(ledger)).toHaveLength(1);
    expect((await view(key, taskId)).status).toBe("failed");
    await warned(taskId, "expired");
  });

  // After an outage longer than the maximum age, nobody has asked about tasks that ended well long ago.
  test("beyond the maximum age, but completed meanwhile: believed, not refunded", async () => {
    const key = await givenKey(redis.client);
    const taskId = await givenTask(gateway, key, "duration=0ms");
    await makeDue(redis.client, key.accountId, { bound_at: String(Date.now() - 2 * 3_600_000) });
    await freed(key);
    const ledger = await readLedger(redis.client, key);
    expect(refunded(ledger)).toHaveLength(0);
    expect((await view(key, taskId)).status).toBe("completed");
  });

  test("unknown upstream: three 404s end it, but not within a minute", async () => {
    const key = await givenKey(redis.client);
    const taskId = await givenTask(gateway, key, "duration=3600s poll-status=404");
    const partition = await partitionFor(redis.client, key.accountId);
    const [requestId = ""] = await openRequests(redis.client, key.accountId);
    const record = requestName(partition, requestId);
    await until(async () => Number((await readRequest(redis.client, record)).gone_count) >= 3, "three 404s");
    expect((await readLedger(redis.client, key)).slots, "a minute is not over").toHaveLength(1);
    await makeDue(redis.client, key.accountId, { gone_since: String(Date.now() - 61_000) });
    await freed(key);
    const ledger = await readLedger(redis.client, key);
    expectSound(ledger);
    expect(refunded(ledger)).toHaveLength(1);
    expect((await view(key, taskId)).status).toBe("failed");
    await warned(taskId, "gone");
  });

  test("a 404 between two answers starts the count anew", async () => {
    const key = await givenKey(redis.client);
    await givenTask(gateway, key, "duration=3600s");
    const partition = await partitionFor(redis.client, key.accountId);
    const [requestId = ""] = await openRequests(redis.client, key.accountId);
    const record = requestName(partition, requestId);
    await changeRequest(redis.client, record, { gone_count: 2, gone_since: Date.now() - 120_000 });
    await makeDue(redis.client, key.accountId);
    await until(
      async () => (await readRequest(redis.client, record)).gone_count === undefined,
      "the count to vanish",
    );
    expect((await readLedger(redis.client, key)).slots).toHaveLength(1);
  });
});

describe("a task without an end ends at its maximum age", () => {
  const ENDLESS = "duration=3600s";

  // Guarantee: a customer who asks every few seconds, as the API advises, does not put the end off for ever.
  test("while its customer polls, and nobody sweeps", async () => {
    const tasks = { maxAgeMs: 100, pollIntervalMs: 3_600_000, sweepIntervalMs: 3_600_000 };
    const asleep = await givenSweeping({ config: { tasks } });
    try {
      const key = await givenKey(redis.client);
      const taskId = await givenTask(asleep, key, ENDLESS);
      const polledView = async () =>
        (await asleep.request("GET", `/api/v1/tasks/${taskId}`, { key: key.key })).body.data;
      await until(async () => (await polledView()).status === "failed", "the task to end");
      const ledger = await readLedger(redis.client, key);
      expectSound(ledger);
      expect(refunded(ledger)).toHaveLength(1);
      expect(await polledView()).toMatchObject({ task_id: taskId, status: "failed" });
    } finally {
      await asleep.stop();
    }
  });

  test("with a longer time between two questions than that", async () => {
    const eager = await givenSweeping({ config: { tasks: { maxAgeMs: 200, pollIntervalMs: 3_600_000 } } });
    try {
      const key = await givenKey(redis.client);
      await givenTask(eager, key, ENDLESS);
      await freed(key);
      expect(refunded(await readLedger(redis.client, key))).toHaveLength(1);
    } finally {
      await eager.stop();
    }
  });
});

test("holds end in time while the upstream hangs over questions", async () => {
  const own = await givenRedis();
  const config = { server: { drainTimeoutMs: 100 } };
  const stuck = await givenSweeping({ redisUrl: own.url, config });
  try {
    const [stuckKey, held] = [await givenKey(own.client), await givenKey(own.client)];
    const tasks: (string | undefined)[] = [];
    for (let nth = 0; nth < 12; nth++) {
      tasks.push(await givenTask(stuck, stuckKey, "duration=3600s poll-fault=hang"));
    }
    const hanging = () => polled(stuck).filter(({ path }) => tasks.includes(path.split("/").at(-1)));
    await until(() => hanging().length === 4, "four questions to hang");
    expectStatus(await generate(stuck, held, "[sandbox: reset]"), 502);
    await makeDue(own.client, held.accountId);
    await until(async () => (await readLedger(own.client, held)).held === 0, "the hold to end");
  } finally {
    await stuck.stop();
    await own.stop();
  }
});

test("sweeping gateways ask for each task once and refund each failed one once", async () => {
  const key = await givenKey(redis.client);
  const others = [await givenSweeping(), await givenSweeping()];
  try {
    const tasks = await Promise.all(
      Array.from({ length: 30 }, (_, nth) =>
        givenTask(gateway, key, nth % 2 ? "duration=0" : "duration=0 fail"),
      ),
    );
    await freed(key);
    for (const taskId of tasks) expect(polled(gateway, taskId), taskId).toHaveLength(1);
    const ledger = await readLedger(redis.client, key);
    expectSound(ledger);
    expect(refunded(ledger)).toHaveLength(15);
    expect(ledger.balance).toBe(1000 - 15 * 10);
  } finally {
    for (const other of others) await other.stop();
  }
});

test("what a dead gateway had claimed comes back when its lease ends, not before", async () => {
  const key = await givenKey(redis.client);
  // Nobody asks for what this one binds before its lease is written.
  const calm = await givenSweeping({ config: { tasks: { pollIntervalMs: 60_000 } } });
  const taskId = await givenTask(calm, key, "duration=0");
  await calm.stop();
  const partition = await partitionFor(redis.client, key.accountId);
  const { due } = partitionNames(partition);
  const [claimed = ""] = await openRequests(redis.client, key.accountId);
  const lease = dueFrom("polls") + Date.now() + 90_000;
  await redis.client.zadd(due, "XX", String(lease), claimed);
  await givenTask(gateway, key);
  await until(async () => (await readLedger(redis.client, key)).slots.length === 1, "the other task's end");
  expect((await readLedger(redis.client, key)).slots).toEqual([claimed]);
  expect(Number(await redis.client.zscore(due, claimed)), "the lease is respected").toBe(lease);
  expect(polled(gateway, taskId)).toHaveLength(0);
  await redis.client.zadd(due, "XX", dueFrom("polls") + 1, claimed);
  await freed(key);
  expect(polled(gateway, taskId)).toHaveLength(1);
});

test("records are collected after the retention of their admission, whoever collects; the ledger stays", async () => {
  const key = await givenKey(redis.client);
  const partition = await partitionFor(redis.client, key.accountId);
  const brief = await givenSweeping({ config: { tasks: { retentionMs: 1 } } });
  const [kept, taskId] = [gateway, brief].map((on) => givenTask(on, key, "duration=0 fail"));
  await Promise.all([kept, taskId]);
  await freed(key);
  await brief.stop();
  const charged = consumed(await readLedger(redis.client, key));
  const recordOf = async (task: Promise<string> | undefined) => {
    const id = await task;
    return requestName(partition, charged.find((entry) => entry.taskId === id)?.requestId ?? "");
  };
  // Its first round, the one that collects, comes once it is ready.
  const collector = await givenSweeping({ config: { tasks: { sweepIntervalMs: 1000 } } });
  try {
    const record = await recordOf(taskId);
    await until(async () => (await redis.client.exists(record)) === 0, "the record to be collected");
    const reply = await collector.request("GET", `/api/v1/tasks/${await taskId}`, { key: key.key });
    expectStatus(reply, 404);
  } finally {
    await collector.stop();
  }
  expect(await redis.client.exists(taskName((await taskId)!, partition))).toBe(0);
  expect(await redis.client.exists(await recordOf(kept))).toBe(1);
  const ledger = await readLedger(redis.client, key);
  expectSound(ledger);
  expect(ledger.entries).toHaveLength(5);
});

// One gateway with `max_age: 1s` once ended 193 running tasks of another, and refunded them.
test("a task is not ended by the maximum age of another gateway, polled or swept", async () => {
  const key = await givenKey(redis.client);
  const taskId = await givenTask(gateway, key, "duration=3600s");
  const impatient = await givenSweeping({ config: { tasks: { maxAgeMs: 1 } } });
  try {
    for (let nth = 0; nth < 3; nth++) {
      const before = polled(gateway, taskId).length;
      await makeDue(redis.client, key.accountId);
      await until(async () => polled(gateway, taskId).length > before, "the sweepers to ask");
      const reply = await impatient.request("GET", `/api/v1/tasks/${taskId}`, { key: key.key });
      expect(reply.body.data.status).toMatch(/^(pending|processing)$/);
    }
    const ledger = await readLedger(redis.client, key);
    expect({ slots: ledger.slots.length, refunds: refunded(ledger) }).toEqual({ slots: 1, refunds: [] });
  } finally {
    await impatient.stop();
  }
});

/** An upstream that says of a task what `status` answers, told how often it was asked before; and one who sweeps. */
async function givenOwnUpstream(status: (before: number) => Promise<string> | string, tasks = {}) {
  const pollCounts = new Map<string, number>();
  const upstream = createServer(async (req, res) => {
    const answer = (data: object) => res.end(JSON.stringify({ code: 200, msg: "success", data }));
    if (req.method === "POST") return answer({ task_id: `abandoned_${randomUUID()}` });
    const taskId = req.url?.split("/").at(-1) ?? "";
    const before = pollCounts.get(taskId) ?? 0;
    pollCounts.set(taskId, before + 1);
    const more = { video_url: "https://videos.example/v.mp4", created_at: "2026-01-01T00:00:00Z" };
    return answer({ task_id: taskId, status: await status(before), ...more });
  });
  upstream.listen(0, "127.0.0.1");
  await once(upstream, "listening");
  const url = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  const own = await givenRedis();
  const sweeping = await givenSweeping({ redisUrl: own.url, upstreamUrl: url, config: { tasks } });
  const stop = async (): Promise<void> => {
    await sweeping.stop();
    await own.stop();
    upstream.close();
  };
  return { pollCounts, own, sweeping, stop };
}

test("a task that still runs is asked for again, and ended once it has ended", async () => {
  const { pollCounts, own, sweeping, stop } = await givenOwnUpstream((before) =>
    before < 3 ? "processing" : "completed",
  );
  try {
    const key = await givenKey(own.client);
    const { body } = await generate(sweeping, key);
    await until(async () => (await readLedger(own.client, key)).slots.length === 0, "the slot to be free");
    expect(pollCounts.get(body.data.task_id)).toBe(4);
    expect((await readLedger(own.client, key)).totalUsed).toBe(10);
  } finally {
    await stop();
  }
});

test("hundreds of abandoned tasks are worked off with at most four questions at a time", async () => {
  let asking = 0;
  let most = 0;
  const status = async (): Promise<string> => {
    most = Math.max(most, ++asking);
    await new Promise((resolve) => setImmediate(resolve));
    asking--;
    return "completed";
  };
  const { own, sweeping, stop } = await givenOwnUpstream(status, {
    pollIntervalMs: 600_000,
    sweepPollsPerSecond: 500,
  });
  try {
    const key = await givenKey(own.client, { credits: 10_000 });
    await Promise.all(Array.from({ length: 300 }, () => generate(sweeping, key)));
    expect(await makeDue(own.client, key.accountId)).toBe(300);
    // A task that finds the queue full stays on the list and is taken as soon as there is room.
    await until(async () => (await readLedger(own.client, key)).slots.length === 0, "all tasks to be ended");
    expect(most).toBe(4);
    expect((await readLedger(own.client, key)).totalUsed).toBe(3000);
  } finally {
    await stop();
  }
});
