import { collectDefaultMetrics, Registry } from "prom-client";
import { metricsIn } from "./metrics/factory.ts";
import { processMetrics } from "./metrics/process.ts";
import { requestMetrics } from "./metrics/requests.ts";
import { settlementMetrics } from "./metrics/settlement.ts";
import { archiveMetrics, redisMetrics, sharedStoreMetrics, storeMetrics } from "./metrics/store.ts";
import { upstreamMetrics } from "./metrics/upstream.ts";
import { callbackMetrics, webhookMetrics } from "./metrics/webhooks.ts";

/**
 * Base units and closed label sets (route template, tier, outcome), never a key, account, task or path. `docs/metrics.md` is made of them.
 * A gauge's `aggregator` says how several processes' values become one; the default is the sum.
 */
export function createMetrics() {
  const registry = new Registry();
  collectNodeMetrics(registry);
  const define = metricsIn(registry);
  return {
    registry,
    ...requestMetrics(define),
    ...upstreamMetrics(define),
    ...callbackMetrics(define),
    ...settlementMetrics(define),
    ...storeMetrics(define),
    ...redisMetrics(define),
    ...sharedStoreMetrics(define),
    ...archiveMetrics(define),
    ...webhookMetrics(define),
    ...processMetrics(define),
  };
}

export type Metrics = ReturnType<typeof createMetrics>;

/** The event loop's lag is sampled this often: each sample wakes an idle process, and at prom-client's 10 ms most of its CPU was that. */
const LAG_EVERY_MS = 100;

function collectNodeMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LAG_EVERY_MS });
  // They are gauges with names of counters, and collecting them visits each open socket.
  for (const kind of ["handles", "requests", "resources"]) {
    registry.removeSingleMetric(`nodejs_active_${kind}`);
    registry.removeSingleMetric(`nodejs_active_${kind}_total`);
  }
  // On a page of several processes: the worst lag, not the mean; the first start, not the sum.
  Object.assign(registry.getSingleMetric("nodejs_eventloop_lag_p99_seconds") ?? {}, { aggregator: "max" });
  Object.assign(registry.getSingleMetric("process_start_time_seconds") ?? {}, { aggregator: "min" });
}
