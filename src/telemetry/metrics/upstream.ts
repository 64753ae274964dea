import { LATENCY_BUCKETS, type MetricFactory } from "./factory.ts";

export function upstreamMetrics({ counter, gauge, histogram }: MetricFactory) {
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
