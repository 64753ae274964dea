import type { MetricFactory } from "./factory.ts";

export const DELIVERY_OUTCOMES = ["delivered", "again", "retried", "failed", "disabled", "fenced"] as const;

export function webhookMetrics({ counter, gauge }: MetricFactory) {
  const aggregator = "max";
  const metrics = {
    webhookDeliveries: counter(
      "tollgate_webhook_deliveries_total",
      "Tries of webhook messages that this gateway has made, by what came of them.",
      ["outcome"],
      DELIVERY_OUTCOMES,
    ),
    webhooksOverdue: gauge(
      "tollgate_webhook_overdue_seconds",
      "How long the webhook message that is due longest has been due, as the store has it; 0 if none is.",
      { aggregator },
    ),
    webhooksWaiting: gauge(
      "tollgate_webhook_deliveries_waiting",
      "Webhook messages that wait for a try, as the store has it.",
      { aggregator },
    ),
    webhookBytes: gauge(
      "tollgate_webhook_events_bytes",
      "What events of webhooks take in the store, about.",
      { aggregator },
    ),
    webhooksDropped: gauge(
      "tollgate_webhook_deliveries_dropped",
      "Webhook messages that were dropped since too many waited or they waited too long, ever, as the store has it.",
      { aggregator },
    ),
  };
  // Absent until it is read: what rises from 0 would be taken for new losses.
  metrics.webhooksDropped.remove();
  return metrics;
}

export const CALLBACK_RESULTS = [
  "settled",
  "observed",
  "finished",
  "bound",
  "late",
  "uncollected",
  "conflict",
  "forgotten",
  "waiting",
  "charged_again",
  "uncovered",
  "void",
  "unknown_request",
  "no_task",
  "unknown_task",
  "unconfirmed",
  "unanswered",
] as const;
export type CallbackResult = (typeof CALLBACK_RESULTS)[number];

export const CALLBACK_REFUSALS = ["forged", "limited", "overloaded"] as const;

export const callbackMetrics = ({ counter }: MetricFactory) => ({
  callbacks: counter(
    "tollgate_callbacks_total",
    "Callbacks of the upstream, by what they led to.",
    ["outcome"],
    [...CALLBACK_RESULTS, ...CALLBACK_REFUSALS],
  ),
});
