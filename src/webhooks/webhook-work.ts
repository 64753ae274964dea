import type { Connection } from "../redis/connection.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { createDeliveryWorker, type DeliverySettings } from "./delivery-worker.ts";
import { createExpiringKeys } from "./expiring-keys.ts";
import type { EgressPolicy } from "./guarded-agent.ts";
import { createQueueFigures } from "./queue-figures.ts";
import { openSecretBox, type SecretKeys } from "./sealed-secrets.ts";
import { createSender } from "./sender.ts";

const FIGURES_EVERY_MS = 10_000;

export type WebhookWorkSettings = DeliverySettings & EgressPolicy & SecretKeys;
export type WebhookWork = ReturnType<typeof createWebhookWork>;

/**
 * Deliveries of webhooks, and their figures. The figures come from the store, so that they tell of deliveries that nobody sends.
 * @param options.settings those in force
 */
export function createWebhookWork(options: {
  connection: Connection;
  settings(): WebhookWorkSettings;
  metrics: Metrics;
  log: Logger;
}) {
  const { connection, settings, metrics, log } = options;
  const box = openSecretBox(settings());
  if (!box) throw new Error("webhooks need WEBHOOK_SECRET_KEY");
  const sender = createSender(settings);
  const worker = createDeliveryWorker({ connection, sender, box, settings, metrics, log });
  const figures = createQueueFigures(connection);
  const expiringKeys = createExpiringKeys(connection, log);
  let timer: NodeJS.Timeout | undefined;

  async function show(): Promise<void> {
    const { firstDueMs, waiting, bytes, dropped } = await figures();
    const overdueMs = firstDueMs === undefined ? 0 : Math.max(0, connection.nowMs() - firstDueMs);
    metrics.webhooksOverdue.set(overdueMs / 1000);
    metrics.webhooksWaiting.set(waiting);
    metrics.webhookBytes.set(bytes);
    metrics.webhooksDropped.set(dropped);
  }

  return {
    start(): void {
      worker.start();
      expiringKeys.start();
      timer = setInterval(() => {
        show().catch((error: unknown) => log.debug({ err: error }, "no figures of webhooks"));
      }, FIGURES_EVERY_MS);
    },
    async stop(): Promise<void> {
      clearInterval(timer);
      await Promise.all([worker.stop(), expiringKeys.stop()]);
    },
  };
}
