import { dropped } from "../log.ts";
import { REVISION, VERSION } from "../version.ts";
import type { MetricFactory } from "./factory.ts";

export function processMetrics({ counter, gauge, readCounter }: MetricFactory) {
  gauge("tollgate_build_info", "Always 1; the labels are the version that runs and its commit.", {
    labelNames: ["version", "revision"],
    aggregator: "first",
  }).set({ version: VERSION, revision: REVISION }, 1);
  logMetrics({ readCounter });
  return {
    configReloadSuccessful: gauge(
      "tollgate_config_last_reload_successful",
      "1 if the last attempt to load the configuration succeeded, 0 if it was refused and the old one stays in force.",
      { aggregator: "min" },
    ),
    configReloadedAt: gauge(
      "tollgate_config_last_reload_success_timestamp_seconds",
      "Unix time at which a valid configuration was last loaded.",
      { aggregator: "min" },
    ),
    configInfo: gauge(
      "tollgate_config_info",
      "Always 1; the hash is the same wherever the same settings and prices are in force.",
      { labelNames: ["hash"], aggregator: "max" },
    ),
    certificateExpiry: gauge(
      "tollgate_tls_certificate_expiry_timestamp_seconds",
      "Unix time at which the certificates in force expire: the earliest of a chain, the latest of several authorities.",
      { labelNames: ["setting"], aggregator: "min" },
    ),
    configAwaitingRestart: gauge(
      "tollgate_config_settings_awaiting_restart",
      "Settings whose value in the file differs from the one in force because a change requires a restart.",
      { aggregator: "max" },
    ),
    checks: gauge(
      "tollgate_check",
      "The last check of what the gateway needs, every five minutes: 0 ok, 1 look at it, 2 mend it.",
      { labelNames: ["check"], aggregator: "max" },
    ),
    spansDropped: counter(
      "tollgate_spans_dropped_total",
      "Spans that were recorded and not sent: the queue was full, or the collector did not accept them.",
      ["reason"],
    ),
  };
}

export function logMetrics({ readCounter }: Pick<MetricFactory, "readCounter">): void {
  readCounter(
    "tollgate_log_lines_dropped_total",
    "Log lines that could not be written.",
    () => dropped.lines,
  );
}
