import { type DestinationStream, type Logger, pino } from "pino";
import { LineWriter } from "./line-writer.ts";

export type { Logger } from "pino";

/**
 * The process's logger: JSON lines on standard output. Paths that could hold a credential are censored in every line.
 */
export function createLogger(
  level: string,
  to: DestinationStream = standardOutput({ shared: false }),
): Logger {
  return pino(
    {
      level,
      base: { service: "tollgate" },
      timestamp: isoTimeOfNow(),
      formatters: { level: (label) => ({ level: label }) },
      redact: {
        paths: ["authorization", "*.authorization", "apiKey", "*.apiKey", "key", "*.headers"],
        censor: "[redacted]",
      },
    },
    to,
  );
}

/** The time of a line, as pino's own `isoTime` writes it; the lines of one millisecond share the text. */
function isoTimeOfNow(): () => string {
  let atMs = Number.NaN;
  let text = "";
  return () => {
    const nowMs = Date.now();
    if (nowMs !== atMs) text = `,"time":"${new Date(nowMs).toISOString()}"`;
    atMs = nowMs;
    return text;
  };
}

/** The log of who did what. Its lines are written whatever the level of `log` is, or is set to later. */
export function createAudit(log: Logger): Logger {
  const audit = log.child({ audit: true });
  // As an option of child(), pino ignores a level that is the parent's, and then follows the parent.
  audit.level = "info";
  return audit;
}

/** @param shared other processes of the gateway write to the same output */
export function standardOutput({ shared }: { shared: boolean }): DestinationStream {
  const writer = new LineWriter(shared);
  process.on("exit", () => writer.flushLast());
  return writer;
}

/** The log line of one request; `undefined` is left out. */
export interface RequestLine {
  request_id: string;
  /** The client's own X-Request-Id, if it sent a valid one. */
  client_request_id: string | undefined;
  trace_id: string | undefined;
  method: string | undefined;
  route: string;
  status: number;
  outcome: string;
  key_id: string | undefined;
  account_id: string | undefined;
  task_id: string | undefined;
  /** Credits, of generations that were priced. */
  price: number | undefined;
  duration_ms: number;
  upstream_ms: number | undefined;
  degraded: boolean | undefined;
  shadow: readonly string[] | undefined;
  client_gone: boolean | undefined;
  detail: string | undefined;
  /** The limit that refused it, and what was used of it. */
  limit: number | undefined;
  used: number | undefined;
  limit_of: "key" | "account" | undefined;
  /** Credits that could be spent, if they did not suffice. */
  balance: number | undefined;
  retry_after_seconds: number | undefined;
}

/**
 * The logger for `logRequest`. Its level follows that of `log`. It does not censor, since a request's line has a closed set of
 * fields without credentials, and the search would cost more than the line.
 */
export const createRequestLog = (log: Logger): Logger => log.child({}, { redact: [] });

/** Writes the line of one request. @param log from `createRequestLog` */
export function logRequest(log: Logger, level: "info" | "warn", line: RequestLine): void {
  line.duration_ms = tenths(line.duration_ms);
  if (line.upstream_ms !== undefined) line.upstream_ms = tenths(line.upstream_ms);
  log[level](line);
}

/** The parts of a request's duration, ms. */
interface RequestTimes {
  requestId: string;
  route: string;
  trace?: { traceId: string } | undefined;
  bodyMs?: number;
  storeMs?: number;
  upstreamMs?: number;
}

/**
 * Warns about a request that was slow in the gateway itself. The client's time for its body and the upstream's time for its
 * answer do not count.
 * @param thresholdMs the time in the gateway from which on a line is written
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
