import { readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { until } from "../support/gateway.ts";
import { givenEndpoint, givenWebhookStage, ownRedisAndReceiver } from "../support/webhook-stage.ts";

const RULES = join(import.meta.dirname, "../../config/prometheus/alerts.yaml");
const HALF_AN_HOUR_MS = 1_800_000;

const own = ownRedisAndReceiver();

type Stage = Awaited<ReturnType<typeof givenWebhookStage>>;

/** Nobody works the queues off. */
const givenIdleStage = () =>
  givenWebhookStage({ redisUrl: own.redis.url, config: { webhooks: { inFlight: 0 } } });

/** The metric and the threshold of an alert whose expression is `max(metric) > threshold`. */
function thresholdOf(name: string): { metric: string; threshold: number } {
  interface Rules {
    groups: { rules: { alert: string; expr: string }[] }[];
  }
  const { groups } = parse(readFileSync(RULES, "utf8")) as Rules;
  const rule = groups.flatMap(({ rules }) => rules).find(({ alert }) => alert === name);
  const [, metric = "", threshold] = /^max\((\w+)\) > (\d+)$/.exec(rule?.expr ?? "") ?? [];
  return { metric, threshold: Number(threshold) };
}

const figure = async ({ gateway }: Stage, name: string): Promise<number> =>
  Number((await gateway.metric(`${name} `))[0]?.split(" ").at(-1));
const age = (stage: Stage) => figure(stage, thresholdOf("TollgateWebhooksOverdue").metric);
const isAlarming = async (stage: Stage): Promise<boolean> =>
  (await age(stage)) > thresholdOf("TollgateWebhooksOverdue").threshold;

/** Messages of an endpoint that have waited for half an hour. */
async function givenWaiting(stage: Stage, count: number) {
  const endpoint = await givenEndpoint(stage, own.receiver.url);
  for (let nth = 0; nth < count; nth++) await stage.manage("POST", `${endpoint.path}/test`);
  const [lane = ""] = await own.redis.client.keys("tg:{*}:webhooks-first");
  await own.redis.client.zadd(lane, Date.now() - HALF_AN_HOUR_MS, endpoint.id);
  return endpoint;
}

const namesOf = async (id: string): Promise<string[]> =>
  (await own.redis.client.keys("*")).filter(
    (name) => name.includes(id) || /:event:|first-tries|sending/.test(name),
  );

// Guarantee: the alarm comes whoever is dead, and no outage of the store ends it.
test("the age of what nobody sends crosses the alert's threshold, and goes on while Redis is away", async () => {
  const stage = await givenIdleStage();
  await givenWaiting(stage, 1);
  for (const _ of [1, 2]) {
    const { path } = await givenEndpoint(stage, own.receiver.url);
    await stage.manage("POST", `${path}/test`);
  }
  await until(async () => (await figure(stage, "tollgate_webhook_deliveries_waiting")) === 3, "all three");
  expect(await isAlarming(stage), "whatever came later").toBe(true);
  await own.redis.kill();
  const atKill = await age(stage);
  await until(async () => (await age(stage)) > atKill, "a later age, of a store that is away");
  await own.redis.startAgain();
  const atStart = await age(stage);
  await until(async () => (await age(stage)) > atStart, "a later age, of the store that is back");
  expect(await isAlarming(stage)).toBe(true);
  await stage.stop();
});

test("an emptied store ends no alarm by itself, and on its next start the alarm comes again", async () => {
  const stage = await givenIdleStage();
  await givenWaiting(stage, 1);
  await until(() => isAlarming(stage), "the alarm");
  await own.redis.kill();
  await rm(join(own.redis.dir, "appendonlydir"), { recursive: true });
  await own.redis.startAgain();
  await until(() => stage.gateway.logs.some((line) => line.includes("Redis is empty")), "it to be seen");
  const atLoss = await age(stage);
  await until(async () => (await age(stage)) > atLoss, "a later age, of a store that is refused");
  await stage.stop();
  const next = await givenIdleStage();
  expect(await age(next)).toBe(0);
  await givenWaiting(next, 1);
  await until(() => isAlarming(next), "the alarm of what waits now");
  expect(await figure(next, "tollgate_webhook_deliveries_waiting")).toBe(1);
  await next.stop();
});

test("a deleted endpoint leaves no count, no age and no record of what waited for it", async () => {
  const stage = await givenIdleStage();
  const { path, id } = await givenWaiting(stage, 120);
  await until(() => isAlarming(stage), "the alarm");
  await stage.manage("DELETE", path);
  await until(async () => (await namesOf(id)).length === 0, "all to be forgotten");
  await until(async () => (await age(stage)) === 0, "the age of nothing");
  await until(async () => (await figure(stage, "tollgate_webhook_deliveries_waiting")) === 0, "no count");
  expect(await figure(stage, "tollgate_webhook_events_bytes")).toBe(0);
  await stage.stop();
});
