import { afterEach, beforeEach, expect, test } from "vitest";
import type { IssuedKey } from "../../src/operations/keys/issue-key.ts";
import { makeDue, readLedger } from "../support/audit.ts";
import { expectStatus, givenGateway, type Reply, type TestGateway, until } from "../support/gateway.ts";
import { type Generator, startGenerator } from "../support/generator.ts";
import { generate, givenKey, givenRedis, ready, type TestRedis } from "../support/store-stage.ts";

/** Above what may be in flight and what may wait, before and after this was made fair. */
const FLOOD = 24;

let redis: TestRedis;
let generator: Generator;
let gateway: TestGateway;
beforeEach(async () => {
  redis = await givenRedis();
  generator = await startGenerator();
  gateway = await givenGateway({
    redisUrl: redis.url,
    generator,
    config: {
      // So long that nothing waits too long or times out while a test runs.
      upstream: { headersTimeoutMs: 60_000, totalTimeoutMs: 120_000, connections: 8, pollConnections: 8 },
      tasks: { cacheMs: 0, pollIntervalMs: 3_600_000, sweepIntervalMs: 20 },
    },
  });
  await ready(gateway);
});
afterEach(async () => {
  await gateway.stop();
  await redis.stop();
});

async function givenTask(key: IssuedKey, directive: string): Promise<string> {
  const reply = await generate(gateway, key, `[sandbox: ${directive}]`);
  expectStatus(reply, 200);
  return reply.body.data.task_id;
}

const poll = ({ key }: IssuedKey, taskId: string): Promise<Reply> =>
  gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });

/** Has the polls of one or more accounts take all that they may, while the upstream does not answer them. */
async function whilePollsHang(accounts: number, work: () => Promise<void>): Promise<void> {
  const flooding = await Promise.all(Array.from({ length: accounts }, () => givenKey(redis.client)));
  const tasks: { key: IssuedKey; taskId: string }[] = [];
  for (let nth = 0; nth < FLOOD; nth++) {
    const key = flooding[nth % accounts]!;
    tasks.push({ key, taskId: await givenTask(key, "poll-fault=hang") });
  }
  const refused: Reply[] = [];
  const polls = tasks.map(async ({ key, taskId }) => {
    const reply = await poll(key, taskId);
    if (reply.status === 503) refused.push(reply);
  });
  try {
    await until(async () => {
      const [inFlight] = await gateway.metric("tollgate_requests_in_flight ");
      return refused.length > 0 && Number(inFlight?.split(" ").at(-1)) + refused.length === FLOOD;
    }, "as many polls as may to hang");
    await work();
    expect(refused[0]!.body).toMatchObject({ code: 503, retryAfter: 1 });
  } finally {
    await generator.stop();
    await Promise.all(polls);
  }
}

// Guarantee: an account whose polls hang takes no other account's.
test("another account's poll is answered while one account's polls take all that they may", async () => {
  const other = await givenKey(redis.client);
  const taskId = await givenTask(other, "duration=0");
  await whilePollsHang(1, async () => {
    for (let round = 0; round < 3; round++) {
      const reply = await poll(other, taskId);
      expectStatus(reply, 200);
      expect(reply.body.data).toMatchObject({ task_id: taskId, status: "completed" });
    }
  });
});

// Guarantee: no load of customers keeps a task open that nobody polls.
test("the sweeper ends a task that is due while customers' polls take all that they may", async () => {
  const other = await givenKey(redis.client);
  await givenTask(other, "duration=0");
  expect((await readLedger(redis.client, other)).slots).toHaveLength(1);
  // Two take all connections: one alone would leave some.
  await whilePollsHang(2, async () => {
    expect(await makeDue(redis.client, other.accountId)).toBe(1);
    await until(
      async () => (await readLedger(redis.client, other)).slots.length === 0,
      "its slot to be free",
    );
  });
});

// Guarantee: generations of one account that hang are its own to wait for.
test("another account's generation is made at once while one account's take all that they may", async () => {
  const flooding = await givenKey(redis.client);
  const other = await givenKey(redis.client);
  const refused: Reply[] = [];
  const flood = Array.from({ length: FLOOD }, async () => {
    const reply = await generate(gateway, flooding, "[sandbox: hang]");
    if (reply.status === 503) refused.push(reply);
  });
  // Six of the eight connections, and as many wait as there are connections; the rest is refused.
  await until(() => refused.length === FLOOD - 14, "as many generations as may to hang");
  for (let round = 0; round < 3; round++) expectStatus(await generate(gateway, other), 200);
  expect(generator.requests).toHaveLength(6 + 3);
  await generator.stop();
  // Requests that hung are lost; those that waited go on to an upstream that has gone. Neither is refused as overloaded.
  await Promise.all(flood);
  expect(refused).toHaveLength(FLOOD - 14);
});
