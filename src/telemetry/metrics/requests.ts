import { LATENCY_BUCKETS, type MetricFactory } from "./factory.ts";

/** The bounds of this process. At each of them it refuses requests or closes connections, and counts that. */
export const OVERLOADS = [
  "requests_in_flight",
  "body_bytes",
  "body_bytes_per_key",
  "connections",
  "connections_per_address",
  "pipelined_requests",
  "unread_answers",
  "write_timeout",
  "callbacks",
] as const;

/** Why the admin port refuses a request before the rights of whoever sent it count. */
export const SIGN_IN_REFUSALS = [
  "no_token",
  "wrong_token",
  "too_many_wrong_tokens",
  "other_site",
  "wrong_host",
  "no_admin_token",
] as const;
export type SignInRefusal = (typeof SIGN_IN_REFUSALS)[number];

export function requestMetrics({ counter, gauge, histogram, ...define }: MetricFactory) {
  return {
    requests: counter(
      "tollgate_requests_total",
      "Requests answered on the public port, by route template, HTTP status and outcome.",
      ["route", "status", "outcome"],
    ),
    managementRequests: counter(
      "tollgate_management_requests_total",
      "Calls of the management API answered on the admin port, by route and HTTP status.",
      ["route", "status"],
    ),
    signInsRefused: counter(
      "tollgate_sign_ins_refused_total",
      "Requests that the admin port refused because of the token, host or site that they came with, by reason.",
      ["reason"],
      SIGN_IN_REFUSALS,
    ),
    requestSeconds: histogram(
      "tollgate_request_duration_seconds",
      "Time from a request's headers to the end of its response, by route template and class of HTTP status.",
      LATENCY_BUCKETS,
      ["route", "class"],
    ),
    inFlight: gauge("tollgate_requests_in_flight", "Requests in progress."),
    overloads: counter(
      "tollgate_overload_total",
      "Requests refused and connections closed by this gateway to stay within its own limits, by limit.",
      ["bound"],
      OVERLOADS,
    ),
    connections: connectionMetrics(define),
    untrustedProxy: counter(
      "tollgate_untrusted_proxy_total",
      "Valid keys first seen behind a proxy that server.trust_proxy does not list: its X-Forwarded-For is ignored.",
    ),
    admissions: admissionsMetric(counter),
    tierKeys: gauge(
      "tollgate_tier_keys",
      "Keys that use each tier and are not revoked; tier `other` is the sum of all that the configuration does not name.",
      { labelNames: ["tier"], aggregator: "max" },
    ),
    shadowRefusals: counter(
      "tollgate_shadow_refusals_total",
      "Admissions that a limit in shadow mode would have refused, by tier and limit.",
      ["tier", "limit"],
    ),
    nearLimit: counter(
      "tollgate_admissions_near_limit_total",
      "Admissions that left less than 20 % of the window, or took the last slot, by tier and limit.",
      ["tier", "limit"],
    ),
    degraded: counter(
      "tollgate_degraded_requests_total",
      "Requests passed through unmetered and uncharged while the store was unavailable (fallback strategy allow).",
      ["route"],
    ),
  };
}

interface ConnectionCounts {
  open: number;
  /** Requests that were read and have not started. */
  waiting: number;
  unreadBytes: number;
  /** How often reading from an address was paused since the start. */
  rests: number;
}

/** @returns `readFrom` sets the source of the counts */
function connectionMetrics({ readGauge, readCounter }: Pick<MetricFactory, "readGauge" | "readCounter">) {
  let counts = (): ConnectionCounts => ({ open: 0, waiting: 0, unreadBytes: 0, rests: 0 });
  readGauge("tollgate_connections", "Open client connections on the public port.", () => counts().open);
  readGauge(
    "tollgate_pipelined_requests_waiting",
    "Requests waiting for earlier requests of their connection; at most server.max_requests_in_flight.",
    () => counts().waiting,
  );
  readGauge(
    "tollgate_unread_answer_bytes",
    "Bytes of responses that were written and that clients have not read yet.",
    () => counts().unreadBytes,
  );
  readCounter(
    "tollgate_read_rests_total",
    "Times that reading from an address was paused because its input used too much of one event loop tick.",
    () => counts().rests,
  );
  return {
    readFrom(source: () => ConnectionCounts): void {
      counts = source;
    },
  };
}

function admissionsMetric(counter: MetricFactory["counter"]) {
  const admissions = counter(
    "tollgate_admissions_total",
    "Admission decisions, by tier and outcome; tier `other` is one that the configuration does not name, `none` is that of an unknown key.",
    ["tier", "outcome"],
  );
  // There from the start, so that the first increase counts.
  for (const outcome of ["admitted", "rate_limited"]) admissions.inc({ tier: "other", outcome }, 0);
  return admissions;
}
