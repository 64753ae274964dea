import { expect, test } from "vitest";
import { partitionOf } from "../../src/records/names.ts";
import type { Message, SendResult } from "../../src/webhooks/sender.ts";
import { until } from "../support/gateway.ts";
import { openConnection } from "../support/store.ts";
import { givenEndpoint, givenWebhookStage, ownRedisAndReceiver } from "../support/webhook-stage.ts";
import { givenWorker } from "../support/worker-stage.ts";

const own = ownRedisAndReceiver();

/** Endpoints in partitions of their own, which wait for a worker whose tries end as the test says. */
async function givenTries({
  endpoints: count,
  each,
  inFlight,
}: {
  endpoints: number;
  each: number;
  inFlight: number;
}) {
  const stage = await givenWebhookStage({ redisUrl: own.redis.url, config: { webhooks: { inFlight: 0 } } });
  const connection = await openConnection(own.redis.url);
  const partitions = connection.known.facts!.partitions;
  const endpoints = new Map<number, Awaited<ReturnType<typeof givenEndpoint>>>();
  while (endpoints.size < count) {
    const endpoint = await givenEndpoint(stage, `${own.receiver.url}/${endpoints.size}`);
    endpoints.set(partitionOf(endpoint.accountId, partitions), endpoint);
  }
  for (let nth = 0; nth < each; nth++)
    await Promise.all([...endpoints.values()].map(({ path }) => stage.manage("POST", `${path}/test`)));
  const tries: { url: string; end(result: SendResult): void }[] = [];
  const send = ({ url }: Message): Promise<SendResult> => {
    const { promise, resolve } = Promise.withResolvers<SendResult>();
    tries.push({ url, end: resolve });
    return promise;
  };
  // Nothing is tried twice: first tries of endpoints that fail are in the lane of retries.
  const limits = { inFlight, inFlightPerEndpoint: 4, timeoutMs: 60_000 };
  const settings = { ...limits, retriesMs: [1e9], disableAfterMs: 1e9, keepMs: 1e9 };
  const worker = givenWorker(connection, send, () => settings);
  return {
    tries,
    worker,
    async stop(): Promise<void> {
      const stopped = worker.stop();
      for (const { end } of tries) end({ outcome: "failed" });
      await stopped;
      await connection.close();
      await stage.stop();
    },
  };
}

// Guarantee: a process makes no more tries at a time than it has places, however many endpoints have something due at once.
test("tries of ten endpoints that fail at once are followed by as many as retries have places", async () => {
  const { tries, worker, stop } = await givenTries({ endpoints: 10, each: 5, inFlight: 16 });
  await worker.look();
  await until(() => tries.length === 10, "one of each");
  for (const { end } of tries.splice(0)) end({ outcome: "failed" });
  await until(() => tries.length >= 4, "retries");
  await worker.look();
  expect(tries.length).toBe(4);
  await stop();
});

// Guarantee: an endpoint that never answers does not keep the places of retries from another one.
test("endpoints with much that is due have the places of retries in turn", async () => {
  const { tries, worker, stop } = await givenTries({ endpoints: 3, each: 6, inFlight: 4 });
  await worker.look();
  await until(() => tries.length === 3, "one of each");
  for (const { end } of tries.splice(0)) end({ outcome: "failed" });
  const order: string[] = [];
  while (order.length < 9) {
    await until(() => tries.length === 1, "the next try");
    const [{ url, end }] = tries.splice(0) as [(typeof tries)[number]];
    order.push(url);
    end({ outcome: "failed" });
  }
  const turns = [0, 3, 6].map((at) => new Set(order.slice(at, at + 3)).size);
  expect(turns).toEqual([3, 3, 3]);
  await stop();
});
