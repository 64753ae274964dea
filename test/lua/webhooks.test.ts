import { afterAll, beforeAll, expect, test } from "vitest";
import { cliActor } from "../../src/records/actor.ts";
import { readDelivery } from "../../src/records/deliveries.ts";
import {
  callbackQueuesName,
  endpointNames,
  eventName,
  type KeyRef,
  keyRef,
  partitionNames,
  webhookNames,
  webhooksName,
} from "../../src/records/names.ts";
import { createScriptRunner, itemOf, type ScriptRunner, scriptsOf } from "../../src/redis/script-runner.ts";
import { suspend } from "../../src/scripts/accounts.ts";
import type { Generation } from "../../src/scripts/holds.ts";
import { expiring } from "../../src/scripts/keys.ts";
import type { Script } from "../../src/scripts/script-definition.ts";
import {
  cleanDeliveries,
  type LeasedDelivery,
  leaseDeliveries,
  queueDelivery,
  settleDelivery,
  webhook,
} from "../../src/scripts/webhooks.ts";
import { KEYS_AT_ONCE } from "../../src/webhooks/webhook-work.ts";
import { changeAccount } from "../support/account-money.ts";
import { createClient } from "../support/client.ts";
import { type OwnStore, openOwnStore } from "../support/own-store.ts";
import { createStage, randomId, type Stage, type TestConnection, times } from "../support/store.ts";
import { holdToBounds } from "./bounds.ts";
import { boundOf } from "./headers.ts";
import { plantForTest } from "./mutant-client.ts";
import { inShare, WEBHOOK_MUTANTS } from "./mutants.ts";

const DAY_MS = 86_400_000;
const LEASE_MS = 30_000;
const DISABLE_MS = 5 * DAY_MS;
const PER_ENDPOINT = 4;
/** The bound in lua/include/events.lua. */
const EVENT_STEPS = 550;
const EVENTS = "task.completed,task.failed";

let server: OwnStore;
let connection: TestConnection;
let stage: Stage;
beforeAll(async () => {
  // Its own, since `everything` looks at every name that there is.
  server = await openOwnStore();
  connection = server.connection;
  holdToBounds(connection.redis, (text) => boundOf(text) + EVENT_STEPS);
});
afterAll(() => server?.stop());

/** Each holds with the scripts, and one does not hold with each mutant of them. */
const GUARANTEES = new Map<string, () => Promise<void>>();
const guarantee = (name: string, holds: () => Promise<void>) => GUARANTEES.set(name, holds);
let scripts: ScriptRunner;
const freshStage = (options: { clock?: "redis" } = {}) => {
  stage = createStage(connection, { ...options, scripts });
};

async function run<Call, Result>(script: Script<Call, Result>, call: Call): Promise<Result> {
  return script.read(await stage.arrive({ script, item: itemOf(script, call) }), call);
}

async function change(
  { accountId }: Pick<KeyRef, "accountId">,
  endpointId: string,
  action: Parameters<typeof webhook.keys>[0]["action"],
  more: Partial<Parameters<typeof webhook.keys>[0]> = {},
) {
  const { partition } = stage;
  return run(webhook, { partition, accountId, endpointId, action, actor: cliActor("test"), ...more });
}

/** An endpoint that has answered before, unless it is unknown. */
async function givenEndpoint(key: KeyRef, events = EVENTS, isKnown = true): Promise<string> {
  const endpointId = randomId("we");
  const fields = { url: `https://example.com/${endpointId}`, events, secret: `sealed-${endpointId}` };
  const made = await change(key, endpointId, "webhook.create", { fields, endpointsMax: 10 });
  expect(made.outcome).toBe("created");
  if (isKnown) await setKnown(endpointId);
  return endpointId;
}

const setKnown = (queueId: string) =>
  stage.redis.hset(endpointNames(stage.partition, queueId).endpoint, "is_slow", "0");

async function finishTask(key: KeyRef, status: "completed" | "failed" = "completed", data?: string) {
  const task = stage.request(key);
  await stage.givenTask(task);
  const observed = await stage.observe(task, status, data === undefined ? {} : { data });
  expect(observed.outcome).toBe("finished");
  return task;
}

const eventOf = ({ requestId }: Generation, status = "completed") => `evt_${requestId}_task_${status}`;
const leaseWith = (keys: readonly string[], firstMax = 16, retryMax = 16) =>
  run(leaseDeliveries, {
    ...{ partition: stage.partition, firstMax, retryMax },
    ...{ perEndpoint: PER_ENDPOINT, leaseMs: LEASE_MS, keys },
  });
const lease = async (firstMax?: number, retryMax?: number): Promise<LeasedDelivery[]> =>
  (await leaseWith(["other-", "sealed-"], firstMax, retryMax)).deliveries;
const settle = async (
  delivery: LeasedDelivery,
  result: "delivered" | "failed" | "gone",
  more: { retryMs?: number; tookMs?: number; answer?: string } = {},
) =>
  run(settleDelivery, {
    ...{ delivery, result, retryMs: more.retryMs, status: 200, answer: more.answer ?? "text of the answer" },
    ...{ tookMs: more.tookMs ?? 5, perEndpoint: PER_ENDPOINT, disableMs: DISABLE_MS },
  });
const outcomeOf = async (...call: Parameters<typeof settle>) => (await settle(...call)).outcome;
const delivery = async (endpointId: string, eventId: string) =>
  readDelivery((await stage.redis.hget(eventName(stage.partition, eventId), endpointId)) ?? "");
const endpointRecord = (endpointId: string) =>
  stage.redis.hgetall(endpointNames(stage.partition, endpointId).endpoint);
const totals = () => stage.redis.hgetall(webhookNames(stage.partition).totals);
const webhooksField = (key: KeyRef) => stage.redis.hget(key.names.account, "webhooks");
const endpointsOf = (leased: readonly LeasedDelivery[]) => leased.map(({ endpointId }) => endpointId);

const dueOf = async (endpointId: string) =>
  Number(await stage.redis.zscore(webhookNames(stage.partition).first, endpointId));

const hasMark = async (key: KeyRef) => (await stage.redis.hget(key.names.account, "money"))?.endsWith(" +");

guarantee("the money of an account is marked while it has an enabled endpoint", async () => {
  const key = await stage.givenKey();
  expect(await hasMark(key)).toBe(false);
  const [first, second] = [await givenEndpoint(key), await givenEndpoint(key)];
  await change(key, first, "webhook.delete");
  expect(await hasMark(key)).toBe(true);
  for (const status of ["disabled", "enabled"]) {
    await change(key, second, "webhook.patch", { fields: { status } });
    expect(await hasMark(key)).toBe(status === "enabled");
  }
  await finishTask(key);
  for (const one of await lease()) await outcomeOf(one, "gone");
  expect(await hasMark(key)).toBe(false);
});

guarantee("the end of a task of an account without endpoints writes nothing of webhooks", async () => {
  await finishTask(await stage.givenKey());
  const names = Object.keys(await stage.everything());
  expect(names.filter((name) => /webhook|event|deliver|tries|retries|sending/.test(name))).toEqual([]);
});

guarantee(
  "the script that ends a task queues one delivery for each endpoint that wants it, however often it runs",
  async () => {
    const key = await stage.givenKey();
    const [both, failures] = [await givenEndpoint(key), await givenEndpoint(key, "task.failed")];
    const data = '{"status":"completed","title":"two  words"}';
    const completed = await finishTask(key, "completed", data);
    await stage.observe(completed, "completed");
    await stage.observe(completed, "failed");
    const failed = await finishTask(key, "failed");
    const leased = await lease();
    expect(leased.map(({ endpointId, eventId }) => [endpointId, eventId]).sort()).toEqual(
      [
        [both, eventOf(completed)],
        [both, eventOf(failed, "failed")],
        [failures, eventOf(failed, "failed")],
      ].sort(),
    );
    expect(leased.find(({ eventId }) => eventId === eventOf(completed))).toMatchObject({
      ...{ url: `https://example.com/${both}`, secrets: [`sealed-${both}`], lease: 1, tries: 0 },
      event: { type: "task.completed", data, accountId: key.accountId },
    });
    expect((await totals())[" waiting"]).toBe("3");
  },
);

guarantee("the end of a task that was not charged is told to nobody: no video for nothing", async () => {
  const key = await stage.givenKey({ credits: 10 });
  await givenEndpoint(key);
  const late = stage.request(key, { price: 10, callback: "https://example.com/done" });
  await stage.admit(late);
  await stage.void(late, "refused");
  await stage.admit(stage.request(key, { price: 10 }));
  expect(await stage.bind(late)).toBe("uncollected");
  expect((await stage.observe(late, "completed")).outcome).toBe("finished");
  expect(await lease()).toEqual([]);
});

guarantee("a task that ended as too old and completes after all is told of anew", async () => {
  const key = await stage.givenKey({ credits: 100 });
  const endpointId = await givenEndpoint(key);
  const task = stage.request(key, { price: 10, callback: "https://late.example/" });
  await stage.givenTask(task);
  await stage.observe(task, "expired");
  for (const one of await lease()) await settle(one, "delivered");
  const { requestId } = task;
  const late = { taskId: `task_${requestId}`, requestId, creatorKeyId: key.keyId };
  const { partition } = stage;
  const call = { partition, accountId: key.accountId, task: late, data: '{"status":"completed"}' };
  expect((await stage.reclaim(call))[0]).toBe("charged_again");
  const leased = (await lease()).map(({ url, event }) => [url, event.type, event.data]);
  expect(leased.sort()).toEqual([
    [`https://example.com/${endpointId}`, "task.completed", call.data],
    ["https://late.example/", "task.completed", call.data],
  ]);
});

guarantee("an event is queued after slot and refund: all are there at one instant", async () => {
  const key = await stage.givenKey({ credits: 100 });
  await givenEndpoint(key);
  await finishTask(key, "failed");
  expect(await lease()).toHaveLength(1);
  const { balance, state } = await stage.account(key);
  expect([balance, state.active]).toEqual([100, 0]);
});

guarantee("data beyond 20,000 bytes is left out of a message, which stays below 20 KiB", async () => {
  const key = await stage.givenKey();
  await givenEndpoint(key);
  const task = await finishTask(key, "completed", `{"text":"${"x".repeat(20_000)}"}`);
  const [{ event }] = (await lease()) as [LeasedDelivery];
  expect(JSON.parse(event.data)).toEqual({ task_id: `task_${task.requestId}`, status: "completed" });
});

guarantee(
  "at most four deliveries of an endpoint are under way, and another endpoint gets its own",
  async () => {
    const key = await stage.givenKey();
    const slow = await givenEndpoint(key);
    for (const _ of times(6, () => 0)) await finishTask(key);
    const first = await lease();
    expect(endpointsOf(first)).toEqual(times(4, () => slow));
    expect(await dueOf(slow), "it is looked at once one of them has ended").toBe(
      stage.clock.nowMs + LEASE_MS,
    );
    expect(await lease()).toEqual([]);
    const other = await stage.givenKey();
    const quick = await givenEndpoint(other);
    await finishTask(other);
    expect(endpointsOf(await lease())).toEqual([quick]);
    expect((await settle(first[0]!, "delivered")).moreIsDue).toBe(true);
    expect(endpointsOf(await lease())).toEqual([slow]);
    stage.clock.nowMs += LEASE_MS;
    expect(endpointsOf(await lease()).filter((one) => one === slow)).toHaveLength(4);
  },
);

guarantee(
  "one delivery of an endpoint is under way until something is known of it; then four, or none of first tries",
  async () => {
    const key = await stage.givenKey();
    const [quick, dead] = [await givenEndpoint(key, EVENTS, false), await givenEndpoint(key, EVENTS, false)];
    for (const _ of times(6, () => 0)) await finishTask(key);
    const first = await lease(100, 0);
    expect(endpointsOf(first).sort()).toEqual([dead, quick].sort());
    expect(await lease(100, 100)).toEqual([]);
    for (const one of first)
      await settle(one, one.endpointId === quick ? "delivered" : "failed", { retryMs: 5000 });
    expect(endpointsOf(await lease(100, 0))).toEqual(times(4, () => quick));
    expect(endpointsOf(await lease(0, 100))).toEqual(times(4, () => dead));
  },
);

guarantee(
  "a leased delivery is hidden until its lease ends; the lease after it fences the first one",
  async () => {
    const key = await stage.givenKey();
    const endpointId = await givenEndpoint(key);
    const task = await finishTask(key);
    const [first] = (await lease()) as [LeasedDelivery];
    stage.clock.nowMs += LEASE_MS - 1;
    expect(await lease()).toEqual([]);
    stage.clock.nowMs += 1;
    const [second] = (await lease()) as [LeasedDelivery];
    expect(second).toMatchObject({ eventId: first.eventId, lease: first.lease + 1 });
    expect(await outcomeOf(first, "failed", { retryMs: 0 })).toBe("fenced");
    expect(await outcomeOf(second, "delivered")).toBe("delivered");
    expect(await outcomeOf(second, "failed")).toBe("fenced");
    expect(await delivery(endpointId, eventOf(task))).toMatchObject({ state: "delivered", leases: 2 });
    expect(await lease()).toEqual([]);
    expect((await totals())[" waiting"]).toBe("0");
  },
);

guarantee("a failed try is repeated when it is due, and the last one fails for good", async () => {
  const key = await stage.givenKey();
  const endpointId = await givenEndpoint(key);
  const task = await finishTask(key);
  const [first] = (await lease()) as [LeasedDelivery];
  expect(await outcomeOf(first, "failed", { retryMs: 5000 })).toBe("retried");
  stage.clock.nowMs += 4999;
  expect(await lease()).toEqual([]);
  stage.clock.nowMs += 1;
  const [second] = (await lease()) as [LeasedDelivery];
  expect(second).toMatchObject({ tries: 1, lane: "retry" });
  expect(await outcomeOf(second, "failed")).toBe("failed");
  expect(await delivery(endpointId, eventOf(task))).toMatchObject({
    ...{ state: "failed", tries: 2, leases: 2, httpStatus: 200, answer: "text of the answer" },
    atMs: stage.clock.nowMs,
  });
  stage.clock.nowMs += DAY_MS;
  expect(await lease()).toEqual([]);
});

guarantee(
  "an endpoint that answers slowly leaves the places of first tries, and comes back once it is quick",
  async () => {
    const key = await stage.givenKey();
    await givenEndpoint(key);
    await finishTask(key);
    const [slow] = (await lease()) as [LeasedDelivery];
    await settle(slow, "delivered", { tookMs: 3001 });
    await finishTask(key);
    expect(await lease(16, 0)).toEqual([]);
    const [quick] = (await lease(0, 16)) as [LeasedDelivery];
    await settle(quick, "delivered", { tookMs: 3000 });
    await finishTask(key);
    expect(await lease(16, 0)).toHaveLength(1);
  },
);

// Guarantee: the alarm for overdue messages comes, though new ones come all the time and nobody sends.
guarantee("an endpoint is due since its first message, however many come after it", async () => {
  const key = await stage.givenKey();
  const endpointId = await givenEndpoint(key);
  const sinceMs = stage.clock.nowMs;
  for (const _ of times(3, () => 0)) {
    await finishTask(key);
    expect(await dueOf(endpointId)).toBe(sinceMs);
    stage.clock.nowMs += 1000;
  }
});

guarantee("endpoints with much to do take turns", async () => {
  const keys = [await stage.givenKey(), await stage.givenKey()];
  const ids = [await givenEndpoint(keys[0]!), await givenEndpoint(keys[1]!)];
  for (const key of keys) for (const _ of times(12, () => 0)) await finishTask(key);
  const order: string[] = [];
  for (let round = 0; round < 4; round++) {
    const leased = await lease(4, 0);
    order.push(leased[0]!.endpointId);
    stage.clock.nowMs += 10;
    for (const one of leased) await settle(one, "delivered");
  }
  expect(new Set(order.slice(0, 2))).toEqual(new Set(ids));
  expect(new Set(order.slice(2))).toEqual(new Set(ids));
});

// Guarantee: a dead endpoint never fills Redis; what is dropped is counted and said.
guarantee(
  "beyond 10,000 waiting deliveries of an endpoint events are dropped and counted; the task ends all the same",
  async () => {
    const key = await stage.givenKey();
    const endpointId = await givenEndpoint(key);
    const ended = eventOf(await finishTask(key));
    for (const one of await lease()) await settle(one, "delivered");
    const { firstTries, retries } = endpointNames(stage.partition, endpointId);
    const filler = (from: number) => times(5000, (at) => [stage.clock.nowMs, `evt_${from + at}`]).flat();
    await stage.redis.zadd(firstTries, ...filler(0));
    await stage.redis.zadd(retries, ...filler(5000));
    const task = await finishTask(key);
    expect(await stage.redis.exists(eventName(stage.partition, eventOf(task)))).toBe(0);
    expect(await endpointRecord(endpointId)).toMatchObject({
      dropped: "1",
      dropped_at: String(stage.clock.nowMs),
    });
    expect(await totals()).toMatchObject({ " dropped": "1" });
    expect((await queue(key, endpointId, ended)).outcome).toBe("full");
    await stage.redis.zrem(firstTries, "evt_0");
    const next = await finishTask(key);
    expect(await stage.redis.exists(eventName(stage.partition, eventOf(next)))).toBe(1);
  },
);

for (const [what, mebibytes, field] of [
  ["an account", 8, (key: KeyRef) => key.accountId],
  ["a partition", 16, () => " bytes"],
] as const)
  guarantee(`events of ${what} take ${mebibytes} MiB at most; ended deliveries give way`, async () => {
    const key = await stage.givenKey();
    const endpointId = await givenEndpoint(key);
    const delivered = await finishTask(key);
    for (const one of await lease()) await settle(one, "delivered");
    const { totals: name } = webhookNames(stage.partition);
    const used = Number(await stage.redis.hget(name, field(key)));
    await stage.redis.hset(name, field(key), mebibytes * 1024 * 1024);
    const next = await finishTask(key);
    expect(await stage.redis.exists(eventName(stage.partition, eventOf(delivered)))).toBe(0);
    expect(await stage.redis.exists(eventName(stage.partition, eventOf(next)))).toBe(1);
    const dropped = await finishTask(key);
    expect(await stage.redis.exists(eventName(stage.partition, eventOf(dropped)))).toBe(0);
    expect(await endpointRecord(endpointId)).toMatchObject({ dropped: "1" });
    await stage.redis.hincrby(name, field(key), -used);
    await finishTask(key);
    expect(await endpointRecord(endpointId)).toMatchObject({ dropped: "1" });
  });

// Guarantee: history denies nobody a message.
for (const [what, mebibytes, field] of [
  ["an account", 4, (key: KeyRef) => key.accountId],
  ["a partition", 8, () => " bytes"],
] as const)
  guarantee(`where events of ${what} take more than half, twenty that have ended are kept`, async () => {
    const key = await stage.givenKey();
    const endpointId = await givenEndpoint(key);
    const { finished } = endpointNames(stage.partition, endpointId);
    const end = async () => {
      const task = await finishTask(key);
      for (const one of await lease()) await settle(one, "failed");
      stage.clock.nowMs += 1;
      return stage.redis.exists(eventName(stage.partition, eventOf(task)));
    };
    await end();
    await stage.redis.zadd(finished, ...times(21, (at) => [1, `evt_${at}`]).flat());
    await stage.redis.hset(webhookNames(stage.partition).totals, field(key), mebibytes * 1024 * 1024 - 500);
    expect([await end(), await stage.redis.zcard(finished)]).toEqual([1, 21]);
    expect([await end(), await stage.redis.zcard(finished)]).toEqual([1, 20]);
    expect([await end(), await stage.redis.zcard(finished)]).toEqual([1, 20]);
    await stage.redis.hset(webhookNames(stage.partition).totals, field(key), 0);
    expect([await end(), await stage.redis.zcard(finished)]).toEqual([1, 21]);
  });

guarantee("long answers count; without room for one only its beginning is kept", async () => {
  const key = await stage.givenKey();
  const endpointId = await givenEndpoint(key);
  const eventId = eventOf(await finishTask(key));
  const bytes = async () => Number((await totals())[" bytes"]);
  const bare = await bytes();
  const fail = async (answer: string) => {
    const [one] = await lease();
    await settle(one!, "failed", { retryMs: 0, answer });
    return (await delivery(endpointId, eventId)).answer;
  };
  expect(await fail("é".repeat(500))).toBe("é".repeat(500));
  expect(await bytes()).toBe(bare + 900);
  expect((await totals())[key.accountId]).toBe(String(bare + 900));
  for (const [field, mebibytes] of [
    [key.accountId, 8],
    [" bytes", 16],
  ] as const) {
    await stage.redis.hset(webhookNames(stage.partition).totals, field, mebibytes * 1024 * 1024);
    const answer = await fail(`x${"é".repeat(501)}`);
    expect(answer).toBe(`x${"é".repeat(49)}`);
    expect(await stage.redis.hget(webhookNames(stage.partition).totals, field)).toBe(
      String(mebibytes * 1024 * 1024 - (field === key.accountId ? 900 : 0)),
    );
  }
});

guarantee(
  "410 disables an endpoint: the audit names the system, what waits stays, and goes once it is enabled",
  async () => {
    // The audit forgets by the ids of Redis.
    freshStage({ clock: "redis" });
    const key = await stage.givenKey();
    const endpointId = await givenEndpoint(key);
    const waiting = [await finishTask(key), await finishTask(key)];
    const [gone, other] = (await lease()) as [LeasedDelivery, LeasedDelivery];
    expect(await outcomeOf(gone, "gone")).toBe("disabled");
    await settle(other, "failed", { retryMs: 0 });
    expect(await endpointRecord(endpointId)).toMatchObject({ status: "disabled", disabled_reason: "gone" });
    expect(await webhooksField(key)).toBeNull();
    const unheard = await finishTask(key);
    expect(await stage.redis.exists(eventName(stage.partition, eventOf(unheard)))).toBe(0);
    expect(await lease()).toEqual([]);
    const { first, retry } = webhookNames(stage.partition);
    expect([await stage.redis.zcard(first), await stage.redis.zcard(retry)]).toEqual([0, 0]);
    const [, fields] = (
      await stage.redis.xrevrange(`tg:{p${stage.partition}}:audit`, "+", "-", "COUNT", 1)
    )[0]!;
    expect(fields.join(" ")).toContain("by system action webhook.disable");
    await change(key, endpointId, "webhook.patch", { fields: { status: "enabled" } });
    expect((await lease()).map(({ eventId }) => eventId)).toEqual([other.eventId]);
    expect(waiting.map((task) => eventOf(task)).sort()).toEqual([gone.eventId, other.eventId].sort());
    expect(await endpointRecord(endpointId)).not.toHaveProperty("disabled_reason");
  },
);

guarantee(
  "only failures of five days, and ten of them, disable an endpoint; a success begins anew",
  async () => {
    const key = await stage.givenKey();
    const endpointId = await givenEndpoint(key);
    await finishTask(key);
    const fail = async () => {
      const [one] = (await lease()) as [LeasedDelivery];
      return outcomeOf(one, "failed", { retryMs: 0 });
    };
    for (const _ of times(8, () => 0)) expect(await fail()).toBe("retried");
    stage.clock.nowMs += DISABLE_MS;
    expect(await fail()).toBe("retried");
    const [good] = (await lease()) as [LeasedDelivery];
    await settle(good, "delivered");
    expect(await endpointRecord(endpointId)).not.toHaveProperty("failing_since");
    await finishTask(key);
    for (const _ of times(10, () => 0)) expect(await fail()).toBe("retried");
    stage.clock.nowMs += DISABLE_MS - 1;
    expect(await fail()).toBe("retried");
    stage.clock.nowMs += 1;
    expect(await fail()).toBe("disabled");
    expect(await endpointRecord(endpointId)).toMatchObject({
      status: "disabled",
      disabled_reason: "failing",
    });
  },
);

const queue = (key: KeyRef, endpointId: string, eventId: string, test?: { type: string; data: string }) =>
  run(queueDelivery, {
    ...{ partition: stage.partition, accountId: key.accountId, endpointId, eventId },
    ...{ ...(test && { test }), actor: cliActor("test") },
  });

guarantee(
  "a delivery is sent again by hand, with its schedule from the start; one that is sent now only afterwards",
  async () => {
    const key = await stage.givenKey();
    const endpointId = await givenEndpoint(key);
    const task = await finishTask(key);
    const eventId = eventOf(task);
    const [first] = (await lease()) as [LeasedDelivery];
    expect((await queue(key, endpointId, eventId)).outcome).toBe("sending");
    expect(await lease()).toEqual([]);
    expect(await outcomeOf(first, "delivered")).toBe("again");
    const [second] = (await lease()) as [LeasedDelivery];
    expect(second).toMatchObject({ eventId, tries: 0 });
    expect(await outcomeOf(second, "failed")).toBe("failed");
    expect((await queue(key, endpointId, eventId)).outcome).toBe("queued");
    expect(await delivery(endpointId, eventId)).toMatchObject({ state: "waiting", tries: 0 });
    const { finished } = endpointNames(stage.partition, endpointId);
    expect(await stage.redis.zcard(finished), "it gives way to none while it waits").toBe(0);
    const [third] = (await lease()) as [LeasedDelivery];
    expect(await outcomeOf(third, "delivered")).toBe("delivered");
    expect((await totals())[" waiting"]).toBe("0");
    expect((await queue(key, endpointId, "evt_unknown")).outcome).toBe("missing");
    expect((await queue(await stage.givenKey(), endpointId, eventId)).outcome).toBe("missing");
  },
);

// Guarantee: no two gateways send it at a time.
guarantee("a retry that an operator wishes once more meanwhile waits once", async () => {
  const key = await stage.givenKey();
  const endpointId = await givenEndpoint(key);
  const eventId = eventOf(await finishTask(key));
  for (const one of await lease()) await settle(one, "failed", { retryMs: 0 });
  const [retry] = (await lease()) as [LeasedDelivery];
  expect((await queue(key, endpointId, eventId)).outcome).toBe("sending");
  expect(await outcomeOf(retry, "failed", { retryMs: 0 })).toBe("again");
  const [wished, ...more] = await lease();
  expect([wished?.eventId, wished?.tries, more]).toEqual([eventId, 0, []]);
  expect(await outcomeOf(wished!, "delivered")).toBe("delivered");
  expect(await endpointRecord(endpointId)).toMatchObject({ delivered_at: String(stage.clock.nowMs) });
  stage.clock.nowMs += LEASE_MS;
  expect(await lease()).toEqual([]);
  expect((await totals())[" waiting"]).toBe("0");
});

// Guarantee: an answer changes no endpoint that an operator has changed since.
guarantee("410 leaves an endpoint as it was deleted or disabled while it was sent", async () => {
  const key = await stage.givenKey();
  const [deleted, disabled] = [await givenEndpoint(key), await givenEndpoint(key)];
  await finishTask(key);
  const sending = await lease();
  await change(key, deleted, "webhook.delete");
  await change(key, disabled, "webhook.patch", { fields: { status: "disabled" } });
  for (const one of sending) expect(await outcomeOf(one, "gone")).toBe("failed");
  expect(await endpointRecord(deleted)).toMatchObject({ status: "deleted" });
  expect(await endpointRecord(disabled)).toMatchObject({ status: "disabled", disabled_reason: "operator" });
});

guarantee(
  "a result that comes twice counts once, and none counts that an operator's wish came after",
  async () => {
    const key = await stage.givenKey();
    const endpointId = await givenEndpoint(key);
    const eventId = eventOf(await finishTask(key));
    const [first] = (await lease()) as [LeasedDelivery];
    expect(await outcomeOf(first, "failed", { retryMs: 5000 })).toBe("retried");
    for (const result of ["failed", "delivered", "gone"] as const)
      expect(await outcomeOf(first, result, { retryMs: 5000 })).toBe("fenced");
    expect(await delivery(endpointId, eventId)).toMatchObject({ state: "waiting", tries: 1 });
    stage.clock.nowMs += 5000;
    const [late] = (await lease()) as [LeasedDelivery];
    stage.clock.nowMs += LEASE_MS;
    expect((await queue(key, endpointId, eventId)).outcome).toBe("queued");
    expect(await outcomeOf(late, "delivered")).toBe("fenced");
    const [wished] = (await lease()) as [LeasedDelivery];
    expect(wished).toMatchObject({ eventId, tries: 0 });
    expect((await queue(key, endpointId, eventId)).outcome).toBe("sending");
    stage.clock.nowMs += 1;
    expect(await outcomeOf(wished, "delivered")).toBe("again");
    expect(await outcomeOf(wished, "delivered")).toBe("fenced");
    const [again] = (await lease()) as [LeasedDelivery];
    for (const outcome of ["delivered", "fenced"]) expect(await outcomeOf(again, "delivered")).toBe(outcome);
    expect((await totals())[" waiting"]).toBe("0");
  },
);

guarantee(
  "what an earlier address answers disables no endpoint, and its failures are not counted on",
  async () => {
    const key = await stage.givenKey();
    const endpointId = await givenEndpoint(key);
    for (const _ of times(2, () => 0)) await finishTask(key);
    const [gone, failing] = (await lease()) as [LeasedDelivery, LeasedDelivery];
    await stage.redis.hset(
      endpointNames(stage.partition, endpointId).endpoint,
      ...["failing_since", stage.clock.nowMs - DISABLE_MS, "failures", 99],
    );
    await change(key, endpointId, "webhook.patch", { fields: { url: "https://moved.example/" } });
    expect(await outcomeOf(gone, "gone", { retryMs: 0 })).toBe("retried");
    expect(await outcomeOf(failing, "failed", { retryMs: 0 })).toBe("retried");
    const record = await endpointRecord(endpointId);
    expect(record).toMatchObject({ status: "enabled" });
    expect(record).not.toHaveProperty("failures");
    const [moved] = await lease();
    expect(moved).toMatchObject({ url: "https://moved.example/", lane: "retry" });
    expect(await outcomeOf(moved!, "gone")).toBe("disabled");
  },
);

guarantee("a test goes to one endpoint, whatever it has asked for; a disabled one gets none", async () => {
  const key = await stage.givenKey();
  const [one] = [await givenEndpoint(key, "task.failed"), await givenEndpoint(key)];
  const sent = await queue(key, one!, "test_1", { type: "webhook.test", data: "{}" });
  const [leased, ...others] = await lease();
  expect(leased).toMatchObject({ endpointId: one, eventId: sent.eventId, event: { data: "{}" } });
  expect(others).toEqual([]);
  await settle(leased!, "delivered");
  await queue(key, one!, "test_1", { type: "webhook.test", data: "{}" });
  expect(await lease()).toEqual([]);
  await change(key, one!, "webhook.patch", { fields: { status: "disabled" } });
  expect((await queue(key, one!, "test_2", { type: "webhook.test", data: "{}" })).outcome).toBe("disabled");
});

guarantee("after a rotation both secrets sign until the overlap is over", async () => {
  const key = await stage.givenKey();
  const endpointId = await givenEndpoint(key);
  const rotate = (secret: string) =>
    change(key, endpointId, "webhook.rotate_secret", { fields: { secret }, overlapMs: DAY_MS });
  await rotate("sealed-1");
  await finishTask(key);
  const first = `sealed-${endpointId}`;
  expect(await lease()).toMatchObject([{ secrets: ["sealed-1", first] }]);
  stage.clock.nowMs += DAY_MS;
  expect(await lease()).toMatchObject([{ secrets: ["sealed-1"] }]);
  await rotate("sealed-2");
  expect(await endpointRecord(endpointId), "what signs no more").toMatchObject({
    previous_secret: "sealed-1",
  });
  stage.clock.nowMs += DAY_MS - 1;
  for (const secret of ["sealed-3", "sealed-4", "sealed-5", "sealed-6"]) await rotate(secret);
  const bounded = ["sealed-6", "sealed-5", "sealed-4", "sealed-3", "sealed-2"];
  expect(await lease()).toMatchObject([{ secrets: bounded }]);
});

guarantee(
  "an account has as many endpoints as it may; a closed one registers none, and its deliveries still go out",
  async () => {
    const key = await stage.givenKey();
    await givenEndpoint(key);
    const create = (endpointsMax: number) =>
      change(key, randomId("we"), "webhook.create", { endpointsMax, fields: { url: "u", events: "e" } });
    expect((await create(1)).outcome).toBe("full");
    await finishTask(key);
    const { partition } = stage;
    const call = { partition, accountId: key.accountId, status: "closed" as const, actor: cliActor("test") };
    await run(suspend, { ...call, mayReinstate: true });
    expect((await create(9)).outcome).toBe("closed");
    expect(await lease()).toHaveLength(1);
  },
);

guarantee(
  "an endpoint of a closed account is only resealed and deleted, and gets nothing again",
  async () => {
    const key = await stage.givenKey();
    const endpointId = await givenEndpoint(key);
    const task = await finishTask(key);
    const called = await finishCalledTask(key, "https://shop.example/told");
    for (const one of await lease()) await settle(one, "delivered");
    const { partition } = stage;
    const call = { partition, accountId: key.accountId, status: "closed" as const, actor: cliActor("test") };
    await run(suspend, { ...call, mayReinstate: true });
    const before = await endpointRecord(endpointId);
    const fields = { secret: "sealed-new" };
    for (const action of ["webhook.patch", "webhook.rotate_secret"] as const)
      expect((await change(key, endpointId, action, { fields, overlapMs: DAY_MS })).outcome).toBe("closed");
    expect((await queue(key, endpointId, "test_1", { type: "webhook.test", data: "{}" })).outcome).toBe(
      "closed",
    );
    expect((await queue(key, endpointId, eventOf(task))).outcome).toBe("closed");
    expect((await queue(key, callbackOf(key), called)).outcome).toBe("closed");
    expect(await endpointRecord(endpointId)).toEqual(before);
    expect(await lease()).toEqual([]);
    expect((await change(key, endpointId, "webhook.reseal", { fields })).outcome).toBe("changed");
    expect((await change(key, endpointId, "webhook.delete")).outcome).toBe("deleted");
  },
);

// Guarantee: a gateway with a wrong WEBHOOK_SECRET_KEY uses up no try, and holds nothing back.
guarantee(
  "what a gateway cannot sign is left for others, untried and due, and the rest goes out",
  async () => {
    const [key, other] = [await stage.givenKey(), await stage.givenKey()];
    const sealed = await givenEndpoint(key);
    const task = await finishTask(key);
    const opened = await givenEndpoint(other);
    await change(other, opened, "webhook.patch", { fields: { secret: "another-key" } });
    await finishTask(other);
    const wrong = await leaseWith(["another-"]);
    expect([wrong.unopened, endpointsOf(wrong.deliveries)]).toEqual([1, [opened]]);
    expect(await delivery(sealed, eventOf(task))).toMatchObject({ state: "waiting", leases: 0, tries: 0 });
    expect(await leaseWith(["another-"])).toMatchObject({ unopened: 1, deliveries: [] });
    expect(endpointsOf(await lease())).toEqual([sealed]);
  },
);

async function finishCalledTask(key: KeyRef, callback: string): Promise<string> {
  const task = stage.request(key, { callback });
  await stage.givenTask(task);
  expect((await stage.observe(task, "completed")).outcome).toBe("finished");
  return eventOf(task);
}
const callbackOf = ({ accountId }: KeyRef) => `callback@${accountId}`;
const queuesOf = (key: KeyRef) =>
  stage.redis.zrange(callbackQueuesName(stage.partition, key.accountId), "0", "-1");

guarantee("addresses of requests are paced by origin: a dead one takes nothing from another", async () => {
  const key = await stage.givenKey({ max_concurrent: 100 });
  for (const at of times(6, (one) => one)) await finishCalledTask(key, `https://dead.example/${at}`);
  const [unknown, ...more] = await lease();
  expect(more).toEqual([]);
  await settle(unknown!, "delivered");
  const dead = await lease();
  expect(dead.map(({ url }) => new URL(url).host)).toEqual(times(4, () => "dead.example"));
  for (const one of dead) await settle(one, "failed", { retryMs: 5000 });
  expect(endpointsOf(await lease(0, 1)), "it retries").toEqual([dead[0]!.endpointId]);
  const quick = await finishCalledTask(key, "https://quick.example/?order=1");
  const [leased, ...others] = await lease(16, 0);
  expect(leased).toMatchObject({ eventId: quick, lane: "first", url: "https://quick.example/?order=1" });
  expect(others).toEqual([]);
  expect(await outcomeOf(leased!, "delivered")).toBe("delivered");
  expect(await delivery(callbackOf(key), quick)).toMatchObject({ state: "delivered", leases: 1 });
  expect(await queuesOf(key)).toHaveLength(2);
  await finishCalledTask(key, "https://quick.example:8443/");
  await finishCalledTask(key, "http://quick.example/");
  expect(await queuesOf(key), "scheme and port are of the origin").toHaveLength(4);
});

guarantee(
  "an account has 16 queues of origins; then an empty one gives way, and while none is empty further ones share one",
  async () => {
    const key = await stage.givenKey({ max_concurrent: 100 });
    const at = (host: number) => finishCalledTask(key, `https://host-${host}.example/`);
    for (const host of times(16, (one) => one)) await at(host);
    const all = await lease(100, 100);
    expect(new Set(endpointsOf(all)).size).toBe(16);
    await setKnown(callbackOf(key));
    for (const host of [16, 17]) await at(host);
    const shared = await lease(100, 100);
    expect(endpointsOf(shared)).toEqual([callbackOf(key), callbackOf(key)]);
    for (const one of [...shared, ...all.slice(0, 1)]) await settle(one, "delivered", { tookMs: 4000 });
    const next = await at(18);
    const [own] = await lease(100, 100);
    expect(own).toMatchObject({ eventId: next, url: "https://host-18.example/" });
    expect(await queuesOf(key)).toHaveLength(16);
    expect(await queuesOf(key)).not.toContain(all[0]!.endpointId);
    expect(await endpointRecord(all[0]!.endpointId)).toEqual({});
  },
);

guarantee(
  "a delivery to an address of a request is sent again by hand, and all is forgotten in time",
  async () => {
    const key = await stage.givenKey();
    const eventId = await finishCalledTask(key, "https://customer.example/done");
    const owner = callbackOf(key);
    const [first] = (await lease()) as [LeasedDelivery];
    expect((await queue(key, owner, eventId)).outcome).toBe("sending");
    expect(await outcomeOf(first, "delivered")).toBe("again");
    const [second] = (await lease()) as [LeasedDelivery];
    expect(await outcomeOf(second, "failed")).toBe("failed");
    await stage.redis.del(callbackQueuesName(stage.partition, key.accountId));
    expect((await queue(key, owner, eventId)).outcome).toBe("queued");
    const [third] = (await lease()) as [LeasedDelivery];
    expect(third).toMatchObject({ eventId, tries: 0, url: "https://customer.example/done" });
    await outcomeOf(third, "delivered", { tookMs: 4000 });
    expect((await queue(await stage.givenKey(), owner, eventId)).outcome).toBe("missing");
    await finishCalledTask(key, "https://waiting.example/");
    stage.clock.nowMs += 7 * DAY_MS;
    while ((await clean()).isMore);
    const names = Object.keys(await stage.everything());
    expect(
      names.filter((name) => /:(event|webhook|deliveries|sending|retries|callback)[:-]?/.test(name)),
    ).toEqual([webhookNames(stage.partition).totals]);
    expect(await totals()).toEqual({ " bytes": "0", " waiting": "0", " dropped": "1" });
  },
);

guarantee("410 ends a message to an address of a request, and no other one", async () => {
  const key = await stage.givenKey();
  const events = [
    await finishCalledTask(key, "https://gone.example/1"),
    await finishCalledTask(key, "https://gone.example/2"),
  ];
  const [gone] = (await lease()) as [LeasedDelivery];
  expect(await outcomeOf(gone, "gone", { retryMs: 0 })).toBe("failed");
  expect(await delivery(callbackOf(key), gone.eventId)).toMatchObject({ state: "failed", tries: 1 });
  expect(await lease()).toMatchObject([{ eventId: events.find((one) => one !== gone.eventId) }]);
});

guarantee("another account's endpoint is missing, and a revision that was seen is compared", async () => {
  const [key, other] = [await stage.givenKey(), await stage.givenKey()];
  const endpointId = await givenEndpoint(key);
  const fields = { label: "new" };
  expect((await change(other, endpointId, "webhook.patch", { fields })).outcome).toBe("missing");
  expect((await change(other, endpointId, "webhook.delete")).outcome).toBe("missing");
  expect((await change(key, endpointId, "webhook.patch", { fields, ifRevisions: [3] })).outcome).toBe(
    "stale",
  );
  expect((await change(key, endpointId, "webhook.patch", { fields, ifRevisions: [0] })).outcome).toBe(
    "changed",
  );
  expect((await change(key, endpointId, "webhook.patch", { fields })).outcome).toBe("unchanged");
});

const clean = (most = 50) => run(cleanDeliveries, { partition: stage.partition, keepMs: 7 * DAY_MS, most });

guarantee(
  "an endpoint is deleted with what waits for it, in slices, and nothing of it is left but the audit",
  async () => {
    const key = await stage.givenKey();
    const [deleted, kept] = [await givenEndpoint(key), await givenEndpoint(key)];
    for (const _ of times(5, () => 0)) await finishTask(key);
    await lease(2, 0);
    expect((await change(key, deleted, "webhook.delete")).outcome).toBe("deleted");
    expect(await webhooksField(key)).toBe(`${kept}:${EVENTS}`);
    expect(endpointsOf(await lease()).includes(deleted)).toBe(false);
    let rounds = 1;
    while ((await clean(2)).isMore) rounds++;
    expect(rounds).toBeGreaterThan(2);
    const left = Object.keys(await stage.everything()).filter((name) => name.includes(deleted));
    expect(left).toEqual([]);
    expect(await stage.redis.zrange(webhooksName(stage.partition, key.accountId), "0", "-1")).toEqual([kept]);
    expect((await totals())[" waiting"]).toBe("5");
    stage.clock.nowMs += LEASE_MS;
    expect((await lease()).map(({ event }) => event.type)).toEqual(times(4, () => "task.completed"));
    await change(key, kept, "webhook.delete");
    while ((await clean()).isMore);
    expect(await totals()).toEqual({ " bytes": "0", " waiting": "0" });
    const names = Object.keys(await stage.everything());
    expect(names.filter((name) => /:(event|webhook|deliveries|sending|retries)[:-]?/.test(name))).toEqual([
      webhookNames(stage.partition).totals,
    ]);
  },
);

guarantee(
  "deliveries are forgotten after seven days, and those that still wait count as dropped",
  async () => {
    const key = await stage.givenKey();
    const endpointId = await givenEndpoint(key);
    await finishTask(key);
    for (const one of await lease()) await settle(one, "delivered");
    const [old] = [await finishTask(key)];
    stage.clock.nowMs += 1;
    const recent = await finishTask(key);
    stage.clock.nowMs += 7 * DAY_MS - 1;
    await clean();
    const exists = (task: Generation) => stage.redis.exists(eventName(stage.partition, eventOf(task)));
    expect([await exists(old!), await exists(recent)]).toEqual([0, 1]);
    expect(await totals()).toMatchObject({ " waiting": "1", " dropped": "1" });
    expect(await endpointRecord(endpointId)).toMatchObject({ dropped: "1" });
  },
);

guarantee("of deliveries that have ended the last 1,000 are kept", async () => {
  const key = await stage.givenKey();
  const endpointId = await givenEndpoint(key);
  const oldest = await finishTask(key);
  for (const one of await lease()) await settle(one, "delivered");
  stage.clock.nowMs += 1;
  const { finished } = endpointNames(stage.partition, endpointId);
  await stage.redis.zadd(finished, ...times(999, (at) => [stage.clock.nowMs, `evt_${at}`]).flat());
  await finishTask(key);
  for (const one of await lease()) await settle(one, "delivered");
  expect(await stage.redis.zcard(finished)).toBe(1000);
  expect(await stage.redis.exists(eventName(stage.partition, eventOf(oldest)))).toBe(0);
});

// The rest takes longer than all before: last, since most mutants are found without it.

// Guarantee: what fails uses up nothing that first tries of endpoints that answer need.
guarantee("ten dead endpoints with retries and new events leave first tries of others alone", async () => {
  const dead = await Promise.all(
    times(10, async () => {
      const key = await stage.givenKey();
      const endpointId = await givenEndpoint(key);
      for (const _ of times(6, () => 0)) await finishTask(key);
      return { key, endpointId };
    }),
  );
  let tried = 0;
  for (let leased = await lease(100, 100); leased.length > 0; leased = await lease(100, 100))
    for (const one of leased)
      tried += (await outcomeOf(one, "failed", { retryMs: 1000 })) === "retried" ? 1 : 0;
  expect(tried).toBe(60);
  stage.clock.nowMs += 1000;
  for (const { key } of dead) await finishTask(key);
  const fresh = await stage.givenKey();
  const endpointId = await givenEndpoint(fresh);
  await finishTask(fresh);
  expect(await lease(16, 0)).toMatchObject([{ endpointId, lane: "first" }]);
  const retries = await lease(16, 16);
  expect(retries).toHaveLength(16);
  expect(new Set(retries.map(({ lane }) => lane))).toEqual(new Set(["retry"]));
});

// Guarantee: a lost key holds up only the endpoints whose secrets it sealed.
guarantee("many endpoints that nobody can sign for do not keep the others from their messages", async () => {
  for (let nth = 0; nth < 64; nth++) {
    const key = await stage.givenKey();
    await givenEndpoint(key);
    await finishTask(key);
  }
  const others: string[] = [];
  for (let nth = 0; nth < 3; nth++) {
    const key = await stage.givenKey();
    const id = await givenEndpoint(key);
    await change(key, id, "webhook.patch", { fields: { secret: "another-key" } });
    stage.clock.nowMs += 10;
    await finishTask(key);
    others.push(id);
  }
  const served = new Set<string>();
  for (let nth = 0; nth < 3; nth++) {
    const { unopened, deliveries } = await leaseWith(["another-"]);
    expect(unopened).toBe(64);
    for (const id of endpointsOf(deliveries)) served.add(id);
    stage.clock.nowMs += 1;
  }
  expect([...served].sort()).toEqual(others.sort());
});

// Guarantee: the bounds hold for what Redis uses.
guarantee(
  "what events, deliveries, addresses and answers take is counted, about as Redis has it",
  async () => {
    const key = await stage.givenKey({ max_concurrent: 100, credits: 1000 });
    const ids = [await givenEndpoint(key), await givenEndpoint(key)];
    const data = JSON.stringify("x".repeat(300));
    for (const id of ids)
      for (const at of times(150, (nth) => nth))
        await queue(key, id, `test_${String(at).padStart(20, "0")}`, { type: "webhook.test", data });
    for (const at of times(10, (nth) => nth))
      await finishCalledTask(key, `https://host-${at}.example/${"a".repeat(10_000)}`);
    for (const one of await lease()) await settle(one, "failed", { retryMs: 0, answer: "é".repeat(1000) });
    const names = Object.keys(await stage.everything()).filter((name) =>
      /:(event|deliveries|first-tries|retries|finished-deliveries):/.test(name),
    );
    const used = await Promise.all(names.map((name) => stage.redis.memory("USAGE", name, "SAMPLES", 0)));
    const share =
      Number((await totals())[" bytes"]) / used.reduce((sum: number, bytes) => sum + Number(bytes), 0);
    expect(share).toBeGreaterThan(0.9);
    expect(share).toBeLessThan(1.3);
  },
);

// Guarantee: no call holds Redis for longer than its header says, whatever is told.
guarantee("ten endpoints, as many origins as may be, and a full store stay within the bounds", async () => {
  const key = await stage.givenKey({ max_concurrent: 100, credits: 1000 });
  for (const _ of times(10, () => 0)) await givenEndpoint(key, `${EVENTS},credits.low,key.expiring`);
  const tell = (at: number) => finishCalledTask(key, `https://host-${at}.example/`);
  for (const at of times(17, (one) => one)) {
    await tell(at);
    for (let leased = await lease(); leased.length > 0; leased = await lease())
      for (const one of leased) await settle(one, "delivered");
  }
  const { totals: name } = webhookNames(stage.partition);
  for (const bytes of [0, 2 ** 31]) {
    await stage.redis.hset(name, " bytes", bytes);
    await changeAccount(stage.redis, key.names.account, { alerts: `${1000 + bytes} 1` });
    await tell(18 + bytes);
    await changeAccount(stage.redis, key.names.account, { alerts: `${1001 + bytes} 1` });
    await finishTask(key, "failed");
    const late = stage.request(key, { callback: `https://late-${bytes}.example/` });
    await stage.givenTask(late);
    await stage.observe(late, "expired");
    await changeAccount(stage.redis, key.names.account, { alerts: `${1002 + bytes} 1` });
    const task = { taskId: `task_${late.requestId}`, requestId: late.requestId, creatorKeyId: key.keyId };
    const { partition } = stage;
    expect((await stage.reclaim({ partition, accountId: key.accountId, task, data: "{}" }))[0]).toBe(
      "charged_again",
    );
    for (const at of times(KEYS_AT_ONCE, (one) => one)) {
      const { names } = keyRef(`key-${bytes}-${at}`, key.accountId, partition);
      await stage.redis.hset(
        names.key,
        "account_id",
        key.accountId,
        "expires_at",
        stage.clock.nowMs + DAY_MS,
      );
      await stage.redis.zadd(partitionNames(partition).expiring, 1, `key-${bytes}-${at}`);
    }
    expect((await run(expiring, { partition, most: KEYS_AT_ONCE })).taken).toBe(KEYS_AT_ONCE);
  }
});

test.each([...GUARANTEES])("%s", async (_, holds) => {
  scripts = scriptsOf(connection.redis);
  freshStage();
  await holds();
});

test.each(inShare(WEBHOOK_MUTANTS))("the mistake is found: $what", async (mutant) => {
  const folder = await plantForTest(mutant);
  const client = createClient(server.url, 10_000);
  await client.connect();
  scripts = createScriptRunner(client, { folder });
  let isFound = false;
  for (const holds of GUARANTEES.values()) {
    freshStage();
    isFound ||= await holds().then(
      () => false,
      () => true,
    );
    if (isFound) break;
  }
  client.disconnect();
  expect(isFound).toBe(true);
});
