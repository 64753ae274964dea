import { expect, test } from "vitest";
import type { Confirmation } from "../../src/redis/confirmation.ts";
import type { Connection } from "../../src/redis/connection.ts";
import { leaseDeliveries } from "../../src/scripts/webhooks.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { DeliveryWorker } from "../../src/webhooks/delivery-worker.ts";
import { openSecretBox } from "../../src/webhooks/sealed-secrets.ts";
import { openConnection } from "../support/store.ts";
import {
  givenEndpoint,
  givenWebhookStage,
  ownRedisAndReceiver,
  WEBHOOK_SECRET_KEY,
} from "../support/webhook-stage.ts";

const own = ownRedisAndReceiver();

const SETTINGS = {
  ...{ timeoutMs: 1000, retriesMs: [], disableAfterMs: 1e9, keepMs: 1e9 },
  ...{ inFlight: 4, inFlightPerEndpoint: 4 },
};

interface Case {
  /** Results of the rounds in their order; the last one stays. */
  rounds: ("replicas" | "none")[];
  /** Another run of the primary answers from this round on. */
  replacedAt?: number;
  /** The delivery was leased before. */
  lease?: number;
  sent: number;
}

// Guarantee: nobody is told of an end that a failover can lose with its charge, unless replicas are away for longer.
test.each<[string, Case]>([
  ["once replicas have it", { rounds: ["none", "none", "replicas"], sent: 1 }],
  [
    "never by the gateway whose primary was replaced",
    { rounds: ["none", "replicas"], replacedAt: 1, sent: 0 },
  ],
  ["with its next lease, also without replicas", { rounds: ["none"], lease: 2, sent: 1 }],
])("a message is sent %s", async (_, { rounds, replacedAt = Number.POSITIVE_INFINITY, lease = 1, sent }) => {
  const stage = await givenWebhookStage({ redisUrl: own.redis.url, config: { webhooks: { inFlight: 0 } } });
  const { path, deliveries } = await givenEndpoint(stage, own.receiver.url);
  const connection: Connection = await openConnection(own.redis.url);
  const primary = connection.of(0);
  const run = primary.run.bind(primary);
  primary.run = async (script, call) => {
    const reply = await run(script, call);
    if (Object.is(script, leaseDeliveries))
      for (const one of (reply as { deliveries: { lease: number }[] }).deliveries) one.lease = lease;
    return reply;
  };
  let roundsMade = 0;
  let sentAfter: number | undefined;
  const confirmation: Pick<Confirmation, "runId" | "confirmed"> = {
    runId: () => (roundsMade > replacedAt ? "another run" : "run"),
    confirmed: async () => rounds[Math.min(roundsMade++, rounds.length - 1)]!,
  };
  Object.assign(primary, { confirmation });
  const worker = new DeliveryWorker({
    connection,
    sender: {
      send: async () => {
        sentAfter = roundsMade;
        return { outcome: "delivered", status: 200 };
      },
      close: async () => undefined,
    },
    box: openSecretBox({ secretKey: WEBHOOK_SECRET_KEY, previousSecretKey: undefined })!,
    settings: () => SETTINGS,
    metrics: createMetrics(),
    log: createLogger("silent"),
  });
  await stage.manage("POST", `${path}/test`);
  await worker.look();
  await worker.idle();
  const wanted = sent === 0 ? undefined : lease > 1 ? 0 : rounds.indexOf("replicas") + 1;
  expect(sentAfter).toBe(wanted);
  expect(await deliveries()).toMatchObject([sent ? {} : { last_attempt_at: null }]);
  await worker.stop();
  await connection.close();
  await stage.stop();
});
