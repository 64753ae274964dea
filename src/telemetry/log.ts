import { type DestinationStream, type Logger, pino } from "pino";
import { createLineWriter } from "./line-writer.ts";

export type { Logger } from "pino";

/**
 * The process's logger: JSON lines on standard output, written synchronously (an asynchronous destination can hang the
 * exit when its reader is gone). Paths that could hold a credential are censored wherever they turn up.
 */
export function createLogger(
  level: string,
  to: DestinationStream = standardOutput({ shared: false }),
): Logger {
  return pino(
    {
      level,
      base: { service: "tollgate" },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: {
        paths: ["authorization", "*.authorization", "apiKey", "*.apiKey", "key", "*.headers"],
        censor: "[redacted]",
      },
    },
    to,
  );
}

/** Who did what: lines that are written whatever the level of `log` is, or is set to later. */
export function createAudit(log: Logger): Logger {
  const audit = log.child({ audit: true });
  // Not as an option of child(): pino ignores it where it is the parent's level, and then follows the parent.
  audit.level = "info";
  return audit;
}

/** @param shared other processes of the gateway write to the same output */
export function standardOutput({ shared }: { shared: boolean }): DestinationStream {
  const writer = createLineWriter(shared);
  process.on("exit", () => writer.flushLast());
  return writer;
}

/** What the log says of one request; `undefined` is left out. Names as in docs. */
export interface RequestLine {
  request_id: string;
  /** The client's own X-Request-Id, where it sent one that could be taken. */
  client_request_id: string | undefined;
  trace_id: string | undefined;
  method: string | undefined;
  route: string;
  status: number;
  outcome: string;
  key_id: string | undefined;
  account_id: string | undefined;
  task_id: string | undefined;
  /** Credits; of generations that could be priced. */
  price: number | undefined;
  duration_ms: number;
  upstream_ms: number | undefined;
  degraded: boolean | undefined;
  shadow: readonly string[] | undefined;
  client_gone: boolean | undefined;
  detail: string | undefined;
}

/**
 * The logger for `logRequest`. Its level follows that of `log`. It does not search for credentials, since the fields of a
 * request's line are a closed set that has none; the search would cost more than the line.
 */
export const createRequestLog = (log: Logger): Logger => log.child({}, { redact: [] });

/** Writes the line of one request. @param log from `createRequestLog` */
export function logRequest(log: Logger, level: "info" | "warn", line: RequestLine): void {
  line.duration_ms = tenths(line.duration_ms);
  if (line.upstream_ms !== undefined) line.upstream_ms = tenths(line.upstream_ms);
  log[level](line);
}

/** Where the time of one request went, ms. */
export interface RequestTimes {
  requestId: string;
  route: string;
  trace?: { traceId: string } | undefined;
  bodyMs?: number;
  storeMs?: number;
  upstreamMs?: number;
}

/**
 * Warns of a request that was slow by the gateway's own fault: without the time that the client took for its body and
 * the upstream for its answer.
 * @param thresholdMs own time that is worth a line
 */
export function logSlow(log: Logger, thresholdMs: number, durationMs: number, times: RequestTimes): void {
  const { bodyMs = 0, storeMs = 0, upstreamMs = 0 } = times;
  const ownMs = durationMs - bodyMs - upstreamMs;
  if (ownMs < thresholdMs) return;
  log.warn(
    {
      request_id: times.requestId,
      trace_id: times.trace?.traceId,
      route: times.route,
      duration_ms: tenths(durationMs),
      own_ms: tenths(ownMs),
      store_ms: tenths(storeMs),
      body_ms: tenths(bodyMs),
      upstream_ms: tenths(upstreamMs),
    },
    "slow request",
  );
}

const tenths = (ms: number): number => Math.round(ms * 10) / 10;
