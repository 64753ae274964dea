import { expect, test } from "vitest";
import type { Connection } from "../../src/redis/connection.ts";
import { leaseDeliveries } from "../../src/scripts/webhooks.ts";
import type { Message, SendResult } from "../../src/webhooks/sender.ts";
import { until } from "../support/gateway.ts";
import { openConnection } from "../support/store.ts";
import { givenEndpoint, givenWebhookStage, ownRedisAndReceiver } from "../support/webhook-stage.ts";
import { givenWorker } from "../support/worker-stage.ts";

const own = ownRedisAndReceiver();

/** More than half of the time by which a lease outlives its try. */
const STILL_MS = 2600;
const SETTINGS = { timeoutMs: 1, retriesMs: [], disableAfterMs: 1e9, keepMs: 1e9 };

const blocked = new Int32Array(new SharedArrayBuffer(4));

/** Something happens as the reply of a lease is there and not yet read. */
function onceLeased(connection: Connection, happens: () => void): void {
  const primary = connection.of(0);
  const run = primary.run.bind(primary);
  primary.run = async (script, call) => {
    const reply = await run(script, call);
    if (Object.is(script, leaseDeliveries)) happens();
    return reply;
  };
}

// Guarantee: a lease that may end before the try would is not used, so that no two gateways send a message at a time.
test.each([
  ["that stood still", () => ({ waited: Atomics.wait(blocked, 0, 0, STILL_MS) })],
  ["whose tries may take longer", ({ timeoutMs }) => ({ timeoutMs: timeoutMs + STILL_MS })],
] satisfies [string, (settings: typeof SETTINGS) => object][])(
  "a gateway %s since it leased a delivery leaves it untried until its lease has ended",
  async (_, happens) => {
    const stage = await givenWebhookStage({ redisUrl: own.redis.url, config: { webhooks: { inFlight: 0 } } });
    const { path, deliveries } = await givenEndpoint(stage, own.receiver.url);
    const connection = await openConnection(own.redis.url);
    const sent: Message[] = [];
    let settings = { ...SETTINGS, inFlight: 4, inFlightPerEndpoint: 4 };
    let isFirst = true;
    onceLeased(connection, () => {
      if (isFirst) settings = { ...settings, ...happens(settings) };
    });
    const send = async (message: Message): Promise<SendResult> => {
      sent.push(message);
      return { outcome: "delivered", status: 200 };
    };
    const worker = givenWorker(connection, send, () => settings);
    await stage.manage("POST", `${path}/test`);
    await worker.look();
    await worker.idle();
    expect(await own.redis.client.keys("*:sending:*"), "it was leased").toHaveLength(1);
    expect(sent).toEqual([]);
    expect(await deliveries()).toMatchObject([{ last_attempt_at: null }]);
    isFirst = false;
    await until(async () => {
      await worker.look();
      await worker.idle();
      return sent.length === 1;
    }, "the lease to end");
    expect(await deliveries()).toMatchObject([{ status: "delivered" }]);
    await worker.stop();
    await connection.close();
    await stage.stop();
  },
);
