import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { ADAPTER_FUNCTIONS, type AdapterObserver } from "./dialect.ts";

const LOG_EVERY_MS = 60_000;

/** Counts what adapters do wrong; the answer's own line of the log says what it was. Slow ones are logged once a minute. */
export function observeAdapter(
  { upstreamAdapterFaults }: Pick<Metrics, "upstreamAdapterFaults">,
  log: Pick<Logger, "warn">,
  nowMs: () => number = () => performance.now(),
): AdapterObserver {
  for (const called of ADAPTER_FUNCTIONS) upstreamAdapterFaults.inc({ call: called }, 0);
  let loggedAtMs = Number.NEGATIVE_INFINITY;
  return {
    fault: (_adapter, called) => upstreamAdapterFaults.inc({ call: called }),
    slow(adapter, called, tookMs) {
      if (nowMs() - loggedAtMs < LOG_EVERY_MS) return;
      loggedAtMs = nowMs();
      const fields = { adapter, call: called, took_ms: Math.round(tookMs) };
      log.warn(fields, "a function of the adapter is slow: meanwhile the gateway serves nobody");
    },
  };
}
