import { expect, test } from "vitest";
import { until } from "../support/gateway.ts";
import {
  givenEndpoint,
  givenKnownEndpoint,
  givenReceiver,
  givenWebhookStage,
  ownRedisAndReceiver,
} from "../support/webhook-stage.ts";

/** Longer than this test may take: no try that hangs ends in it. */
const TIMEOUT_MS = 600_000;

const own = ownRedisAndReceiver();

type Stage = Awaited<ReturnType<typeof givenWebhookStage>>;
type Endpoint = Awaited<ReturnType<typeof givenEndpoint>>;

const sendTests = async (stage: Stage, endpoints: readonly Endpoint[], each: number): Promise<void> => {
  for (let nth = 0; nth < each; nth++)
    await Promise.all(endpoints.map(({ path }) => stage.manage("POST", `${path}/test`)));
};

const overdueOf = async ({ gateway }: Stage): Promise<number> =>
  Number((await gateway.metric("tollgate_webhook_overdue_seconds "))[0]?.split(" ").at(-1));

// Guarantee: whoever has answered nothing so far takes one place, so that many new dead endpoints leave places to others.
test("ten new endpoints that hang leave places of first tries, and fresh messages go out at once", async () => {
  const config = { webhooks: { inFlight: 16, timeoutMs: TIMEOUT_MS } };
  const stage = await givenWebhookStage({ redisUrl: own.redis.url, config });
  const hanging = await givenReceiver();
  const endpoints: Endpoint[] = [];
  for (let at = 0; at < 10; at++) endpoints.push(await givenEndpoint(stage, hanging.url));
  hanging.say(() => undefined);
  await sendTests(stage, endpoints, 6);
  await until(() => hanging.received.length === 10, "each to hang");
  const fresh = await givenEndpoint(stage, own.receiver.url);
  await sendTests(stage, [fresh], 5);
  await until(() => own.receiver.received.length === 5, "fresh messages");
  expect(hanging.mostUnderWay()).toBe(10);
  await hanging.stop();
  await stage.stop();
});

// Guarantee: a try that hangs gives its place away long before its timeout, also where the endpoint answered so far.
test("endpoints that answered and then hang give their places back, to as many as there are places", async () => {
  const config = { webhooks: { inFlight: 5, timeoutMs: TIMEOUT_MS } };
  const stage = await givenWebhookStage({ redisUrl: own.redis.url, config });
  const hanging = await givenReceiver();
  const endpoints: Endpoint[] = [];
  for (let at = 0; at < 4; at++) endpoints.push(await givenKnownEndpoint(stage, hanging));
  hanging.say(() => undefined);
  const hang = (count: number) => until(() => hanging.received.length === count, `${count} to hang`);
  await sendTests(stage, endpoints.slice(0, 2), 4);
  await hang(8);
  const fresh = await givenEndpoint(stage, own.receiver.url);
  await sendTests(stage, [fresh], 2);
  await until(() => own.receiver.received.length === 2, "fresh messages");
  await sendTests(stage, endpoints.slice(2), 4);
  await hang(10);
  await until(async () => (await overdueOf(stage)) > 2, "the rest to wait");
  expect(hanging.mostUnderWay()).toBe(10);
  await hanging.stop();
  await stage.stop();
});

// Guarantee: what is repeated uses up nothing that first tries need, whatever the receivers of retries do.
test("retries that hang have places of their own, a quarter as many, and fresh messages go out at once", async () => {
  const config = { webhooks: { inFlight: 8, timeoutMs: TIMEOUT_MS } };
  const stage = await givenWebhookStage({ redisUrl: own.redis.url, config });
  const hanging = await givenReceiver();
  const seen = new Set<unknown>();
  let hung = 0;
  hanging.say((response, { headers }) => {
    if (seen.has(headers["webhook-id"])) hung++;
    else response.writeHead(500).end();
    seen.add(headers["webhook-id"]);
  });
  const endpoints: Endpoint[] = [];
  for (let at = 0; at < 4; at++) endpoints.push(await givenEndpoint(stage, hanging.url));
  await sendTests(stage, endpoints, 4);
  await until(() => hung >= 2, "retries to hang");
  const fresh = await givenEndpoint(stage, own.receiver.url);
  await sendTests(stage, [fresh], 5);
  await until(() => own.receiver.received.length === 5, "fresh messages");
  await until(async () => (await overdueOf(stage)) > 2, "the rest to wait");
  expect(hung).toBe(2);
  await hanging.stop();
  await stage.stop();
});
