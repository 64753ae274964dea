import type { Connection } from "../../src/redis/connection.ts";
import { createLogger } from "../../src/telemetry/log.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { type DeliverySettings, DeliveryWorker } from "../../src/webhooks/delivery-worker.ts";
import { openSecretBox } from "../../src/webhooks/sealed-secrets.ts";
import type { Message, SendResult } from "../../src/webhooks/sender.ts";
import { WEBHOOK_SECRET_KEY } from "./webhook-stage.ts";

/** A delivery worker that looks when it is told to, and whose messages the test takes. */
export const givenWorker = (
  connection: Connection,
  send: (message: Message) => Promise<SendResult>,
  settings: () => DeliverySettings,
) =>
  new DeliveryWorker({
    connection,
    sender: { send, close: async () => undefined },
    box: openSecretBox({ secretKey: WEBHOOK_SECRET_KEY, previousSecretKey: undefined })!,
    settings,
    metrics: createMetrics(),
    log: createLogger("silent"),
  });
