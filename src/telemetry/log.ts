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
  const log = pino(
    {
      level,
      base: { service: "tollgate" },
      timestamp: () => `,"time":"${isoTimeOfNow()}"`,
      formatters: { level: (label) => ({ level: label }) },
      redact: {
        paths: ["authorization", "*.authorization", "apiKey", "*.apiKey", "key", "*.headers"],
        censor: "[redacted]",
      },
    },
    to,
  );
  outputs.set(log, to);
  return log;
}

const outputs = new WeakMap<Logger, DestinationStream>();

let timeAtMs = Number.NaN;
let timeText = "";
/** How the lines of requests of this millisecond begin. */
let begun = { info: "", warn: "" };

/** The lines of one millisecond share the text. */
function isoTimeOfNow(): string {
  const nowMs = Date.now();
  if (nowMs === timeAtMs) return timeText;
  timeAtMs = nowMs;
  timeText = new Date(nowMs).toISOString();
  const rest = `,"time":"${timeText}","service":"tollgate","request_id":"`;
  begun = { info: `{"level":"info"${rest}`, warn: `{"level":"warn"${rest}` };
  return timeText;
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
 * Writes the line of one request, which the level of `log` allows or not. The text is put together here, as pino would: a
 * generic serialiser costs several times as much, and there is a line for each request. Nothing is censored, since the fields are
 * a closed set without credentials.
 * @param log from `createLogger`
 */
export function logRequest(log: Logger, level: "info" | "warn", line: RequestLine): void {
  if (!log.isLevelEnabled(level)) return;
  isoTimeOfNow();
  let text = `${begun[level] + line.request_id}"`;
  if (line.client_request_id !== undefined) text += `,"client_request_id":"${line.client_request_id}"`;
  if (line.trace_id !== undefined) text += `,"trace_id":"${line.trace_id}"`;
  if (line.method !== undefined) text += `,"method":${quoted(line.method)}`;
  text += `,"route":"${line.route}","status":${line.status}`;
  if (line.outcome !== undefined) text += `,"outcome":"${line.outcome}"`;
  if (line.key_id !== undefined) text += `,"key_id":${quoted(line.key_id)}`;
  if (line.account_id !== undefined) text += `,"account_id":${quoted(line.account_id)}`;
  if (line.task_id !== undefined) text += `,"task_id":${quoted(line.task_id)}`;
  if (line.price !== undefined) text += `,"price":${line.price}`;
  text += `,"duration_ms":${tenths(line.duration_ms)}`;
  if (line.upstream_ms !== undefined) text += `,"upstream_ms":${tenths(line.upstream_ms)}`;
  if (line.degraded !== undefined) text += `,"degraded":${line.degraded}`;
  if (line.shadow !== undefined) text += `,"shadow":${JSON.stringify(line.shadow)}`;
  if (line.client_gone !== undefined) text += `,"client_gone":${line.client_gone}`;
  text += refusalFields(line);
  outputs.get(log)!.write(`${text}}\n`);
}

function refusalFields(line: RequestLine): string {
  let text = "";
  if (line.detail !== undefined) text += `,"detail":${quoted(line.detail)}`;
  if (line.limit !== undefined) text += `,"limit":${line.limit}`;
  if (line.limit_of !== undefined) text += `,"limit_of":"${line.limit_of}"`;
  if (line.used !== undefined) text += `,"used":${line.used}`;
  if (line.balance !== undefined) text += `,"balance":${line.balance}`;
  if (line.retry_after_seconds !== undefined) text += `,"retry_after_seconds":${line.retry_after_seconds}`;
  return text;
}

const quoted = (text: string): string => JSON.stringify(text);

/** The parts of a request's duration, ms. */
interface RequestTimes {
  requestId: string;
  route: string;
  trace?: { traceId: string } | undefined;
  bodyMs?: number | undefined;
  storeMs?: number | undefined;
  upstreamMs?: number | undefined;
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
