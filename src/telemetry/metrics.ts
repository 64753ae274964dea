import { collectDefaultMetrics, Gauge, Registry } from "prom-client";
import { dropped } from "./log.ts";
import { Counter, Histogram } from "./tally.ts";

const LATENCY_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const STORE_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];

/**
 * All metrics of one gateway process in a registry of its own. Base units; label sets are closed (route template,
 * tier, outcome), never a key, an account, a task or a path as the client sent it.
 */
export function createMetrics() {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  return {
    registry,
    requests: new Counter({
      name: "tollgate_requests_total",
      help: "Requests answered on the public port, by route template, HTTP status and outcome.",
      labelNames: ["route", "status", "outcome"],
      registers,
    }),
    requestSeconds: new Histogram({
      name: "tollgate_request_duration_seconds",
      help: "From the request's headers to the end of its answer.",
      labelNames: ["route"],
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
      help: "Time an upstream exchange took, by kind (generate, poll, upload) and outcome.",
      labelNames: ["kind", "outcome"],
      buckets: LATENCY_SECONDS,
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
    holds: new Gauge({
      name: "tollgate_holds",
      help: "Holds of this gateway whose upstream exchange is under way; see also unknown outcomes and settlements.",
      registers,
    }),
    settlements: new Counter({
      name: "tollgate_settlements_total",
      help: "What became of holds and tasks: bound, late, uncollected, conflict, void, finished, refunded, gone, expired.",
      labelNames: ["outcome"],
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
    degraded: new Counter({
      name: "tollgate_degraded_requests_total",
      help: "Requests let through unmetered and uncharged while the store was unavailable (strategy allow).",
      labelNames: ["route"],
      registers,
    }),
    storeSeconds: new Histogram({
      name: "tollgate_store_call_duration_seconds",
      help: "Script calls to the store, by verb.",
      labelNames: ["verb"],
      buckets: STORE_SECONDS,
      registers,
    }),
    storeFailures: new Counter({
      name: "tollgate_store_failures_total",
      help: "Script calls that failed, by reason (timeout, connection, refused, open).",
      labelNames: ["reason"],
      registers,
    }),
    storeUp: new Gauge({
      name: "tollgate_store_up",
      help: "1 while the store is usable (the breaker is closed), else 0.",
      registers,
    }),
    ledgerViolations: new Gauge({
      name: "tollgate_ledger_violations",
      help: "Broken invariants that the last check of the books by this gateway found; 0 is how it must be.",
      registers,
    }),
    ledgerCheckedAt: new Gauge({
      name: "tollgate_ledger_check_timestamp_seconds",
      help: "When this gateway last checked the books, Unix time; 0 if it never was its turn.",
      registers,
    }),
    outbox: new Gauge({
      name: "tollgate_store_outbox_entries",
      help: "Settlements that wait for the store to answer again.",
      registers,
    }),
    logLinesDropped: new Gauge({
      name: "tollgate_log_lines_dropped",
      help: "Log lines that could not be written since the start.",
      registers,
      collect() {
        this.set(dropped.lines);
      },
    }),
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
    configAwaitingRestart: new Gauge({
      name: "tollgate_config_settings_awaiting_restart",
      help: "Settings whose value in the file differs from the one in force, because they need a restart.",
      aggregator: "max",
      registers,
    }),
    sweeps: new Counter({
      name: "tollgate_sweeper_items_total",
      help: "Work the sweeper took up, by kind (hold, task, record) and outcome.",
      labelNames: ["kind", "outcome"],
      registers,
    }),
    sweepLagSeconds: new Gauge({
      name: "tollgate_sweeper_lag_seconds",
      help: "How long the last complete sweep of all partitions took.",
      registers,
    }),
  };
}

export type Metrics = ReturnType<typeof createMetrics>;
