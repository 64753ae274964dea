import { collectDefaultMetrics, Registry } from "prom-client";
import { LATENCY_BUCKETS, type MetricFactory, metricsIn } from "./metrics/factory.ts";
import { processMetrics } from "./metrics/process.ts";
import { requestMetrics } from "./metrics/requests.ts";
import { archiveMetrics, redisMetrics, sharedStoreMetrics, storeMetrics } from "./metrics/store.ts";
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

/** Outcomes in `tollgate_settlements_total`. All series exist from the start, so that the first of a kind is seen. */
export const SETTLEMENTS = [
  "bound",
  "late",
  "uncollected",
  "conflict",
  "forgotten",
  "void",
  "finished",
  "refunded",
  "gone",
  "expired",
] as const;

function settlementMetrics({ counter, gauge }: MetricFactory) {
  return {
    settlements: counter(
      "tollgate_settlements_total",
      "Holds and tasks settled by this gateway, by outcome.",
      ["outcome"],
      SETTLEMENTS,
    ),
    tasksEndedUnanswered: counter(
      "tollgate_tasks_ended_unanswered_total",
      "Tasks ended as failed at twice their maximum age because the upstream never answered about them.",
    ),
    holds: gauge("tollgate_holds", "Holds of this gateway whose upstream exchange is in progress."),
    creditsConsumed: counter("tollgate_credits_consumed_total", "Credits charged for bound tasks."),
    creditsRefunded: counter("tollgate_credits_refunded_total", "Credits refunded for failed tasks."),
    creditsUncollected: counter(
      "tollgate_credits_uncollected_total",
      "Credits not charged for tasks whose charge came after their hold was void: the balance was too low, a repeat with the same Idempotency-Key may be charged, or the store had removed the request.",
    ),
    sweeps: counter("tollgate_sweeper_items_total", "Items processed by the sweeper, by kind and outcome.", [
      "kind",
      "outcome",
    ]),
    sweepSeconds: gauge(
      "tollgate_sweep_duration_seconds",
      "Duration of this gateway's last sweep over all partitions.",
      { aggregator: "max" },
    ),
  };
}

function upstreamMetrics({ counter, gauge, histogram }: MetricFactory) {
  return {
    upstreamSeconds: histogram(
      "tollgate_upstream_duration_seconds",
      "Duration of upstream exchanges that a client waited for, by kind and outcome.",
      LATENCY_BUCKETS,
      ["kind", "outcome"],
    ),
    upstreamWaiting: gauge(
      "tollgate_upstream_waiting_requests",
      "Requests waiting for a connection to the upstream, by kind.",
      { labelNames: ["kind"] },
    ),
    upstreamWaitSeconds: histogram(
      "tollgate_upstream_wait_duration_seconds",
      "Time that requests waited for a connection to the upstream, by kind; those that got one at once are not included.",
      LATENCY_BUCKETS,
      ["kind"],
    ),
    upstreamOverloaded: counter(
      "tollgate_upstream_overloaded_total",
      "Requests that were not sent because they got no connection to the upstream in time, by kind and reason.",
      ["kind", "reason"],
    ),
    unknownOutcomes: counter(
      "tollgate_upstream_unknown_outcomes_total",
      "Generation requests whose upstream outcome is unknown; their holds end at the due time.",
    ),
    upstreamRefusedGateway: counter(
      "tollgate_upstream_refused_gateway_total",
      "Upstream responses that reject the gateway's own credential, account or configuration.",
    ),
    upstreamMisrouted: counter(
      "tollgate_upstream_misrouted_polls_total",
      "Polls answered with a redirect, or an HTTP 404 that is not from the upstream's API: a wrong address or path, or a proxy's page.",
    ),
    upstreamUnusableStates: counter(
      "tollgate_upstream_unusable_states_total",
      "Polls that found a task in a state that is not known, or completed without a usable video_url, by kind.",
      ["kind"],
      ["unknown_status", "completed_without_video"],
    ),
    upstreamUnroutable: counter(
      "tollgate_upstream_unroutable_polls_total",
      "Polls not sent because the address or credential of the upstream that made the task is not configured.",
    ),
    upstreamAdapterFaults: counter(
      "tollgate_upstream_adapter_faults_total",
      "Calls of the upstream's adapter that threw or returned nonsense, by function: the outcome of a generation is unknown then.",
      ["call"],
    ),
    uploads: gauge(
      "tollgate_uploads_in_flight",
      "Uploads in progress in this process; at most upstream.upload_connections.",
    ),
  };
}
