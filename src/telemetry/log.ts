import { type DestinationStream, type Logger, pino, symbols } from "pino";
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
      timestamp: () => `,"time":"${isoNow()}"`,
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
 * Writes the line of one request. Put together by hand: a generic serialiser costs ten times as much, and there is one
 * for each request. Decision 0021. Only `detail` and `method` can hold what JSON must escape.
 */
export function logRequest(log: Logger, level: "info" | "warn", line: RequestLine): void {
  if (!log.isLevelEnabled(level)) return;
  let text = `{"level":"${level}","time":"${isoNow()}","service":"tollgate","request_id":"${line.request_id}"`;
  if (line.client_request_id !== undefined) text += `,"client_request_id":"${line.client_request_id}"`;
  if (line.trace_id !== undefined) text += `,"trace_id":"${line.trace_id}"`;
  if (line.method !== undefined) text += `,"method":${JSON.stringify(line.method)}`;
  text += `,"route":"${line.route}","status":${line.status},"outcome":"${line.outcome}"`;
  if (line.key_id !== undefined) text += `,"key_id":"${line.key_id}"`;
  if (line.account_id !== undefined) text += `,"account_id":"${line.account_id}"`;
  if (line.task_id !== undefined) text += `,"task_id":"${line.task_id}"`;
  if (line.price !== undefined) text += `,"price":${line.price}`;
  text += `,"duration_ms":${tenths(line.duration_ms)}`;
  if (line.upstream_ms !== undefined) text += `,"upstream_ms":${tenths(line.upstream_ms)}`;
  if (line.degraded) text += ',"degraded":true';
  if (line.shadow) text += `,"shadow":${JSON.stringify(line.shadow)}`;
  if (line.client_gone) text += ',"client_gone":true';
  if (line.detail !== undefined) text += `,"detail":${JSON.stringify(line.detail)}`;
  streamOf(log).write(`${text}}\n`);
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

const streamOf = (log: Logger): DestinationStream => Reflect.get(log, symbols.streamSym) as DestinationStream;

const tenths = (ms: number): number => Math.round(ms * 10) / 10;

let isoAtMs = 0;
let iso = "";

/** The time as ISO 8601; made anew once a millisecond. */
function isoNow(): string {
  const nowMs = Date.now();
  if (nowMs !== isoAtMs) {
    isoAtMs = nowMs;
    iso = new Date(nowMs).toISOString();
  }
  return iso;
}
