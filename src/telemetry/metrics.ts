import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import packageJson from "../../package.json" with { type: "json" };
import { createConnectionMetrics, createLogLinesDropped, createNearLimit } from "./collected.ts";

const LATENCY_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const STORE_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];

/** What `tollgate_settlements_total` counts. All are there from the start, so that the first of a kind is seen. */
export const SETTLEMENTS = [
  "bound",
  "late",
  "uncollected",
  "conflict",
  "void",
  "finished",
  "refunded",
  "gone",
  "expired",
] as const;

/** Why this process refused a request, or ended a connection, to stay within its bounds. */
export const OVERLOADS = [
  "requests_in_flight",
  "body_bytes",
  "body_bytes_per_key",
  "connections",
  "connections_per_address",
  "pipelined_requests",
  "unread_answers",
  "write_timeout",
] as const;

/** Why a call to the store failed. */
export const STORE_FAILURES = ["timeout", "connection", "refused", "open", "overloaded"] as const;

/**
 * All metrics of one gateway process in a registry of its own. Base units; label sets are closed (route template,
 * tier, outcome), never a key, an account, a task or a path as the client sent it. `docs/metrics.md` is made from
 * them. Where several processes share one page, `aggregator` says how gauges come together; without one they add up.
 */
export function createMetrics() {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  // Named like counters, though they are gauges, and asking costs a look at each open socket.
  for (const what of ["handles", "requests", "resources"]) {
    registry.removeSingleMetric(`nodejs_active_${what}`);
    registry.removeSingleMetric(`nodejs_active_${what}_total`);
  }
  // Of several processes the worst counts, not their mean; and the first start, not none.
  Object.assign(registry.getSingleMetric("nodejs_eventloop_lag_p99_seconds") ?? {}, { aggregator: "max" });
  Object.assign(registry.getSingleMetric("process_start_time_seconds") ?? {}, { aggregator: "min" });
  new Gauge({
    name: "tollgate_build_info",
    help: "Always 1; the label says which version runs.",
    labelNames: ["version"],
    aggregator: "first",
    registers,
  }).set({ version: packageJson.version }, 1);
  return {
    registry,
    ...trafficMetrics(registers),
    ...overloadMetrics(registers),
    ...moneyMetrics(registers),
    ...storeMetrics(registers),
    ...booksMetrics(registers),
    ...workMetrics(registers),
    ...configMetrics(registers),
  };
}

/** Which configuration is in force, and whether the files still agree with it. Of several processes the worst counts. */
function configMetrics(registers: Registry[]) {
  return {
    configReloadSuccessful: new Gauge({
      name: "tollgate_config_last_reload_successful",
      help: "1 if the last attempt to read the configuration succeeded, 0 if it was refused and the old one is kept.",
      aggregator: "min",
      registers,
    }),
    configReloadedAt: new Gauge({
      name: "tollgate_config_last_reload_success_timestamp_seconds",
      help: "When the configuration was last read and found valid, Unix time.",
      aggregator: "min",
      registers,
    }),
    configInfo: new Gauge({
      name: "tollgate_config_info",
      help: "Always 1; the hash is the same wherever the same settings and prices are in force.",
      labelNames: ["hash"],
      aggregator: "max",
      registers,
    }),
    certificateExpiry: new Gauge({
      name: "tollgate_tls_certificate_expiry_timestamp_seconds",
      help: "When the certificates in force stop being valid, Unix time: of a chain the first, of several authorities the last.",
      labelNames: ["setting"],
      aggregator: "min",
      registers,
    }),
    configAwaitingRestart: new Gauge({
      name: "tollgate_config_settings_awaiting_restart",
      help: "Settings whose value in the file differs from the one in force, because they need a restart.",
      aggregator: "max",
      registers,
    }),
  };
}

export type Metrics = ReturnType<typeof createMetrics>;

/** Requests, admissions and the upstream's part in them. */
function trafficMetrics(registers: Registry[]) {
  return {
    requests: new Counter({
      name: "tollgate_requests_total",
      help: "Requests answered on the public port, by route template, HTTP status and outcome.",
      labelNames: ["route", "status", "outcome"],
      registers,
    }),
    requestSeconds: new Histogram({
      name: "tollgate_request_duration_seconds",
      help: "From the request's headers to the end of its answer, by class of HTTP status.",
      labelNames: ["route", "class"],
      buckets: LATENCY_SECONDS,
      registers,
    }),
    inFlight: new Gauge({
      name: "tollgate_requests_in_flight",
      help: "Requests now being worked on.",
      registers,
    }),
    upstreamSeconds: new Histogram({
      name: "tollgate_upstream_duration_seconds",
      help: "Time an upstream exchange took that a client waited for, by kind and outcome.",
      labelNames: ["kind", "outcome"],
      buckets: LATENCY_SECONDS,
      registers,
    }),
    upstreamWaiting: new Gauge({
      name: "tollgate_upstream_waiting_requests",
      help: "Requests that wait for a connection to the upstream, by kind.",
      labelNames: ["kind"],
      registers,
    }),
    upstreamWaitSeconds: new Histogram({
      name: "tollgate_upstream_wait_duration_seconds",
      help: "Time that requests waited for a connection to the upstream before they got one, by kind; the others got one at once.",
      labelNames: ["kind"],
      buckets: LATENCY_SECONDS,
      registers,
    }),
    upstreamOverloaded: new Counter({
      name: "tollgate_upstream_overloaded_total",
      help: "Requests that got no connection to the upstream in time and were not sent, by kind and reason.",
      labelNames: ["kind", "reason"],
      registers,
    }),
    untrustedProxy: new Counter({
      name: "tollgate_untrusted_proxy_total",
      help: "Good keys first seen behind a proxy that server.trust_proxy does not name: its X-Forwarded-For is not believed.",
      registers,
    }),
    unknownOutcomes: new Counter({
      name: "tollgate_upstream_unknown_outcomes_total",
      help: "Generation requests whose upstream outcome stayed unknown; their holds end at the due time.",
      registers,
    }),
    upstreamRefusedGateway: new Counter({
      name: "tollgate_upstream_refused_gateway_total",
      help: "Upstream answers that blame the gateway's credential, account or configuration.",
      registers,
    }),
    upstreamMisrouted: new Counter({
      name: "tollgate_upstream_misrouted_polls_total",
      help: "Polls answered with an HTTP 404 that is not the upstream's API: a wrong address or path, or a proxy's page.",
      registers,
    }),
    upstreamUnroutable: new Counter({
      name: "tollgate_upstream_unroutable_polls_total",
      help: "Polls of tasks of another upstream, whose address or credential this gateway does not know; they are not sent.",
      registers,
    }),
    admissions: new Counter({
      name: "tollgate_admissions_total",
      help: "Decisions of ADMIT, by tier and outcome; tier `other` is one that the config does not name.",
      labelNames: ["tier", "outcome"],
      registers,
    }),
    shadowRefusals: new Counter({
      name: "tollgate_shadow_refusals_total",
      help: "Admissions that a limit in shadow mode would have refused, by tier and limit.",
      labelNames: ["tier", "limit"],
      registers,
    }),
    nearLimit: createNearLimit(registers),
    degraded: new Counter({
      name: "tollgate_degraded_requests_total",
      help: "Requests let through unmetered and uncharged while the store was unavailable (strategy allow).",
      labelNames: ["route"],
      registers,
    }),
  };
}

/** How near this process is to its own bounds, and what it turned away. */
function overloadMetrics(registers: Registry[]) {
  const overloads = new Counter({
    name: "tollgate_overload_total",
    help: "Requests refused and connections ended by this gateway to stay within its own bounds, by bound.",
    labelNames: ["bound"],
    registers,
  });
  for (const bound of OVERLOADS) overloads.inc({ bound }, 0);
  return {
    overloads,
    connections: createConnectionMetrics(registers),
  };
}

/** What became of holds and credits. */
function moneyMetrics(registers: Registry[]) {
  const settlements = new Counter({
    name: "tollgate_settlements_total",
    help: "What became of holds and tasks, settled by this gateway.",
    labelNames: ["outcome"],
    registers,
  });
  for (const outcome of SETTLEMENTS) settlements.inc({ outcome }, 0);
  return {
    settlements,
    tasksEndedUnanswered: new Counter({
      name: "tollgate_tasks_ended_unanswered_total",
      help: "Tasks ended as failed at twice their maximum age, since the upstream never answered about them.",
      registers,
    }),
    uploads: new Gauge({
      name: "tollgate_uploads_in_flight",
      help: "Uploads under way in this process; at most upstream.upload_connections.",
      registers,
    }),
    holds: new Gauge({
      name: "tollgate_holds",
      help: "Holds of this gateway whose upstream exchange is under way; see also unknown outcomes and settlements.",
      registers,
    }),
    creditsConsumed: new Counter({
      name: "tollgate_credits_consumed_total",
      help: "Credits charged for bound tasks.",
      registers,
    }),
    creditsRefunded: new Counter({
      name: "tollgate_credits_refunded_total",
      help: "Credits given back for failed tasks.",
      registers,
    }),
    creditsUncollected: new Counter({
      name: "tollgate_credits_uncollected_total",
      help: "Credits that tasks cost whose hold was void before they came, and whose account could not pay any more.",
      registers,
    }),
  };
}

/** The store as this gateway meets it. */
function storeMetrics(registers: Registry[]) {
  const storeFailures = new Counter({
    name: "tollgate_store_failures_total",
    help: "Calls to the store that failed; `open`: not even tried, since the breaker was open; `overloaded`: too many waited.",
    labelNames: ["reason"],
    registers,
  });
  for (const reason of STORE_FAILURES) storeFailures.inc({ reason }, 0);
  return {
    storeFailures,
    storeSeconds: new Histogram({
      name: "tollgate_store_call_duration_seconds",
      help: "Script calls to the store, by the name of the script.",
      labelNames: ["script"],
      buckets: STORE_SECONDS,
      registers,
    }),
    storeWaiting: new Gauge({
      name: "tollgate_store_calls_waiting",
      help: "Requests that wait for their key's turn, since as many calls as allowed are under way.",
      registers,
    }),
    storeUp: new Gauge({
      name: "tollgate_store_up",
      help: "1 while the store is usable (the breaker is closed), else 0.",
      aggregator: "min",
      registers,
    }),
    outbox: new Gauge({
      name: "tollgate_store_outbox_entries",
      help: "Settlements that wait for the store to answer again.",
      registers,
    }),
    journalUsable: new Gauge({
      name: "tollgate_journal_usable",
      help: "1 while the journal's files are there and can grow, else 0: a crash while the store is away would lose charges.",
      aggregator: "min",
      registers,
    }),
    storeOlder: new Gauge({
      name: "tollgate_store_older",
      help: "1 while the store lacks what it has confirmed, and is not used until an operator accepts it.",
      aggregator: "max",
      registers,
    }),
    outboxOfOtherStores: new Gauge({
      name: "tollgate_store_outbox_other_store_entries",
      help: "Those of the waiting settlements that are owed to another store than the one in use.",
      registers,
    }),
  };
}

/**
 * What is true of the store as a whole, and the same from every gateway that shares it: take the maximum, never the
 * sum. One gateway counts and leaves the figures in the store for all.
 */
function booksMetrics(registers: Registry[]) {
  const shared = { aggregator: "max", registers } as const;
  return {
    openRequests: new Gauge({
      name: "tollgate_open_requests",
      help: "Holds and unfinished tasks in the store, each of which has a slot, by their age.",
      labelNames: ["state", "age"],
      ...shared,
    }),
    openRequestsOldest: new Gauge({
      name: "tollgate_open_requests_oldest_seconds",
      help: "Age of the oldest hold and of the oldest unfinished task in the store; 0 without any.",
      labelNames: ["state"],
      ...shared,
    }),
    sweeperLag: new Gauge({
      name: "tollgate_sweeper_lag_seconds",
      help: "How long the most overdue work in the store has been waiting for a sweeper to take it up.",
      ...shared,
    }),
    surveyedAt: new Gauge({
      name: "tollgate_store_survey_timestamp_seconds",
      help: "When one of the gateways last counted open requests, Unix time; 0 if none did.",
      ...shared,
    }),
    ledgerViolations: new Gauge({
      name: "tollgate_ledger_violations",
      help: "Broken invariants that the last check of the ledger found; 0 is how it must be.",
      ...shared,
    }),
    ledgerCheckedAt: new Gauge({
      name: "tollgate_ledger_check_timestamp_seconds",
      help: "When one of the gateways last checked the ledger, Unix time; 0 if none did.",
      ...shared,
    }),
    ledgerCredits: new Gauge({
      name: "tollgate_ledger_credits",
      help: "Credits in the whole ledger at its last check, by type of entry; recharges by the command line included.",
      labelNames: ["type"],
      ...shared,
    }),
    ledgerCheckInterval: new Gauge({
      name: "tollgate_ledger_check_interval_seconds",
      help: "How often one of the gateways should check the ledger; 0: never.",
      ...shared,
    }),
  };
}

/** What this process does beside serving. */
function workMetrics(registers: Registry[]) {
  return {
    ledgerCheckFailures: new Counter({
      name: "tollgate_ledger_check_failures_total",
      help: "Checks of the ledger that this gateway began and could not finish.",
      registers,
    }),
    sweeps: new Counter({
      name: "tollgate_sweeper_items_total",
      help: "Work the sweeper took up, by kind and outcome.",
      labelNames: ["kind", "outcome"],
      registers,
    }),
    sweepSeconds: new Gauge({
      name: "tollgate_sweep_duration_seconds",
      help: "How long this gateway's last round over all partitions took.",
      aggregator: "max",
      registers,
    }),
    logLinesDropped: createLogLinesDropped(registers),
    spansDropped: new Counter({
      name: "tollgate_spans_dropped_total",
      help: "Spans that were recorded and not sent: the queue was full, or the collector did not take them.",
      labelNames: ["reason"],
      registers,
    }),
  };
}
