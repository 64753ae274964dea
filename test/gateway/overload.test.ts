import { setTimeout as delay } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import { consumed, expectSound, readLedger } from "../support/audit.ts";
import { expectStatus, givenGateway, type Reply, type TestGateway, until } from "../support/gateway.ts";
import { BOAT, conforming, TEXT_TO_VIDEO } from "./spec-stage.ts";

const CONNECTIONS = 8;
const GENERATION_MS = 100;
/** Generations a second that the connections can carry. */
const CAPACITY = (CONNECTIONS * 1000) / GENERATION_MS;
const UPSTREAM = {
  connections: CONNECTIONS,
  connectTimeoutMs: 750,
  // Far above what a busy machine adds, so that only the queue's length refuses.
  headersTimeoutMs: 4000,
  totalTimeoutMs: 8000,
};

let gateway: TestGateway;
beforeEach(async () => {
  gateway = await givenGateway({
    config: { upstream: UPSTREAM, tasks: { cacheMs: 0 } },
    behaviour: { delayMs: GENERATION_MS },
  });
});
afterEach(() => gateway.stop());

const LIMITS = { rate_limit: 100_000, max_concurrent: 10_000, daily_limit: 100_000 };
const givenKey = () => gateway.givenKey({ credits: 1_000_000, limits: LIMITS });
const generate = (key: string) => gateway.request("POST", TEXT_TO_VIDEO, { key, body: BOAT });
const tasksMade = () => gateway.generator.requests.filter(({ method }) => method === "POST");

/** Sends `perSecond` generations a second for some seconds, however many of them wait. */
async function offerLoad(key: string, perSecond: number, seconds: number): Promise<Reply[]> {
  const startedMs = performance.now();
  const replies: Promise<Reply>[] = [];
  while (replies.length < perSecond * seconds) {
    const dueNow = Math.ceil(((performance.now() - startedMs) / 1000) * perSecond);
    while (replies.length < Math.min(dueNow, perSecond * seconds)) replies.push(generate(key));
    await delay(5);
  }
  return Promise.all(replies);
}

// Guarantee: load above the capacity of the connections costs the excess and nothing else. What is sent is answered and
// charged, what is not sent holds nothing, and the load's end is the overload's end.
test.each([
  [1.3, 4],
  [3, 3],
])(
  "%d times the capacity: nothing is lost, every task is charged, and it ends with the load",
  async (times, seconds) => {
    const owner = await givenKey();
    const replies = await offerLoad(owner.key, CAPACITY * times, seconds);
    const accepted = replies.map(({ status }) => status === 200);
    const others = replies.filter(({ status }) => status !== 200);
    expect(new Set(others.map(({ status, body }) => `${status} ${body.msg}`))).toEqual(
      new Set(["503 The service is busy; try again shortly"]),
    );
    for (const reply of others) {
      conforming(reply);
      expect(reply.body).toMatchObject({ code: 503, retryAfter: 1 });
    }
    const acceptedCount = accepted.filter(Boolean).length;
    const half = accepted.length / 2;
    const late = accepted.slice(half).filter(Boolean).length;
    expect(late, "as much is carried late as early").toBeGreaterThan(acceptedCount / 4);

    const ledger = await readLedger(gateway.redis, owner);
    expectSound(ledger);
    expect(tasksMade()).toHaveLength(acceptedCount);
    expect(consumed(ledger)).toHaveLength(acceptedCount);
    expect(ledger.windowEntries, "a refused request keeps no place in the window").toBe(acceptedCount);
    expect({ held: ledger.held, slots: ledger.slots.length }).toEqual({ held: 0, slots: acceptedCount });
    expect(await gateway.metric("tollgate_upstream_unknown_outcomes_total")).toEqual([
      "tollgate_upstream_unknown_outcomes_total 0",
    ]);
    expectStatus(await generate(owner.key), 200);
  },
);

// Guarantee: polls that hang take no connection from generations.
test("generations go on while every poll hangs", async () => {
  const { key } = await givenKey();
  gateway.generator.behave({ delayMs: 0, pollFault: "hang" });
  const tasks: string[] = [];
  while (tasks.length < CONNECTIONS) tasks.push((await generate(key)).body.data.task_id);
  const ended: string[] = [];
  const polls = tasks.map(async (taskId) => {
    await gateway.request("GET", `/api/v1/tasks/${taskId}`, { key });
    ended.push("poll");
  });
  const polled = () => gateway.generator.requests.length - tasksMade().length;
  await until(() => polled() === CONNECTIONS, "the polls to hang");
  expectStatus(await generate(key), 200);
  expect(ended).toEqual([]);
  await Promise.all(polls);
});

// Guarantee: what waits, and what is refused, is counted.
test("waiting and refused requests are in the metrics", async () => {
  const { key } = await givenKey();
  // Longer than it takes to send them all, so that none has ended before the last has come.
  gateway.generator.behave({ delayMs: 1500 });
  const replies = Array.from({ length: CONNECTIONS * 3 }, () => generate(key));
  const sample = async (name: string): Promise<number> =>
    Number((await gateway.metric(`tollgate_upstream_${name}`)).at(0)?.split(" ").at(-1));
  const statuses = (await Promise.all(replies)).map(({ status }) => status);
  const refused = statuses.filter((status) => status === 503).length;
  expect(refused).toBeGreaterThan(0);
  expect(await sample('overloaded_total{kind="generate",reason="queue_full"}')).toBe(refused);
  expect(await sample('wait_duration_seconds_count{kind="generate"}')).toBeGreaterThan(0);
  expect(await sample('waiting_requests{kind="generate"}')).toBe(0);
});
