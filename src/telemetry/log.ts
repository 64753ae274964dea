import fs from "node:fs";
import { type DestinationStream, type Logger, pino } from "pino";
import { chunksOf, linesIn } from "./log-chunks.ts";

export type { Logger } from "pino";

let ownOutput: DestinationStream | undefined;

/** JSON lines on standard output. Paths that could hold a credential are censored. */
export function createLogger(level: string, output?: DestinationStream): Logger {
  if (!output) ownOutput ??= standardOutput({ shared: false });
  const to = output ?? ownOutput!;
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
let begun = { debug: "", info: "", warn: "" };

/** The lines of one millisecond share the text. */
function isoTimeOfNow(): string {
  const nowMs = Date.now();
  if (nowMs === timeAtMs) return timeText;
  timeAtMs = nowMs;
  timeText = new Date(nowMs).toISOString();
  const rest = `,"time":"${timeText}","service":"tollgate"`;
  begun = {
    debug: `{"level":"debug"${rest}`,
    info: `{"level":"info"${rest}`,
    warn: `{"level":"warn"${rest}`,
  };
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

export interface LoggedRequest {
  req: { method?: string | undefined };
  requestId: string;
  /** The id in the response: the client's own X-Request-Id if it is well-formed, else `requestId`. Decision 0012. */
  shownId: string;
  trace: { traceId: string } | undefined;
  /** Route template for logs and metrics; a closed set. */
  route: string;
  keyId: string | undefined;
  accountId: string | undefined;
  taskId: string | undefined;
  /** Credits, of generations that were priced. */
  price: number | undefined;
  upstreamMs: number | undefined;
  /** True when the request passed unmetered because the store was unavailable. */
  degraded: boolean | undefined;
  /** Limits in shadow mode that would have refused it. */
  shadow: readonly string[] | undefined;
  /** True when the client went away before its response could be written. */
  clientGone: boolean | undefined;
}

interface LoggedAnswer {
  status: number;
  outcome: string;
  elapsedMs: number;
  refused: LoggedRefusal | undefined;
}

interface LoggedRefusal {
  detail?: string;
  limit?: number;
  used?: number;
  limitOf?: "key" | "account";
  balance?: number;
  retryAfterSeconds?: number;
}

/**
 * The text is put together here, as pino would: a generic serialiser costs several times as much. Nothing is censored: the fields are a
 * closed set without credentials. @param log from `createLogger`
 */
export function logRequest(
  log: Logger,
  level: "debug" | "info" | "warn",
  request: LoggedRequest,
  { status, outcome, elapsedMs, refused }: LoggedAnswer,
): void {
  if (!log.isLevelEnabled(level)) return;
  isoTimeOfNow();
  const { requestId, shownId, trace, req, route, keyId, accountId, taskId, price } = request;
  let text = `${begun[level]},"request_id":"${requestId}"`;
  if (shownId !== requestId) text += `,"client_request_id":"${shownId}"`;
  if (trace !== undefined) text += `,"trace_id":"${trace.traceId}"`;
  if (req.method !== undefined) text += `,"method":${quoted(req.method)}`;
  text += `,"route":"${route}","status":${status},"outcome":"${outcome}"`;
  if (keyId !== undefined) text += `,"key_id":${quoted(keyId)}`;
  if (accountId !== undefined) text += `,"account_id":${quoted(accountId)}`;
  if (taskId !== undefined) text += `,"task_id":${quoted(taskId)}`;
  if (price !== undefined) text += `,"price":${price}`;
  text += `,"duration_ms":${tenths(elapsedMs)}`;
  if (request.upstreamMs !== undefined) text += `,"upstream_ms":${tenths(request.upstreamMs)}`;
  if (request.degraded !== undefined) text += `,"degraded":${request.degraded}`;
  if (request.shadow !== undefined) text += `,"shadow":${JSON.stringify(request.shadow)}`;
  if (request.clientGone !== undefined) text += `,"client_gone":${request.clientGone}`;
  if (refused !== undefined) text += refusalFields(refused);
  outputs.get(log)!.write(`${text}}\n`);
}

function refusalFields({ detail, limit, limitOf, used, balance, retryAfterSeconds }: LoggedRefusal): string {
  let text = "";
  if (detail !== undefined) text += `,"detail":${quoted(detail)}`;
  if (limit !== undefined) text += `,"limit":${limit}`;
  if (limitOf !== undefined) text += `,"limit_of":"${limitOf}"`;
  if (used !== undefined) text += `,"used":${used}`;
  if (balance !== undefined) text += `,"balance":${balance}`;
  if (retryAfterSeconds !== undefined) text += `,"retry_after_seconds":${retryAfterSeconds}`;
  return text;
}

/** Most texts here are ids; a test is cheaper than the escapes. */
const PLAIN = /^[\w.~-]*$/;
const quoted = (text: string): string => (PLAIN.test(text) ? `"${text}"` : JSON.stringify(text));

interface RequestTimes extends LoggedRequest {
  bodyMs: number | undefined;
  storeMs: number | undefined;
}

/** The client's time for its body and the upstream's for its answer do not count. @param thresholdMs from which on a line is written */
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

const STDOUT = 1;
/** POSIX: a pipe takes a write of up to this size as a whole or not at all. PIPE_BUF on Linux. */
const ATOMIC_BYTES = 4096;
/** A process that has its output to itself completes partial writes. */
const ALONE_BYTES = 64 * 1024;
/** Lines waiting for a slow reader or a full disk; beyond it new ones are dropped. */
const WAITING_BYTES_MAX = 1024 * 1024;
const RETRY_MS = 25;
/** How long the end of the process waits for a slow reader. */
const LAST_FLUSH_MS = 500;
/** UTF-8 of one UTF-16 code unit. */
const BYTES_PER_CHAR_MAX = 3;

/** Lines that could not be written since the start: a full disk, a reader that has gone. */
export const dropped = { lines: 0 };

/**
 * Writes to standard output without waiting for its reader: a tick's lines together, the rest later, in order. Beyond the bound, and when
 * the reader has gone, lines are dropped and counted. Decision 0016.
 */
class LineWriter {
  readonly #shared: boolean;
  readonly #chunkBytesMax: number;
  #text = "";
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #retry: NodeJS.Timeout | undefined;

  /** @param shared several processes write to it: no write is longer than what a pipe takes as a whole */
  constructor(shared: boolean) {
    unblockStdout();
    this.#shared = shared;
    this.#chunkBytesMax = shared ? ATOMIC_BYTES : ALONE_BYTES;
  }

  write(line: string): void {
    if (this.#text === "") queueMicrotask(this.#flush);
    this.#text += line;
  }

  flushLast(): void {
    const untilMs = performance.now() + LAST_FLUSH_MS;
    this.#flush();
    while (this.#writeWaiting() === "EAGAIN" && performance.now() < untilMs) pause(RETRY_MS);
  }

  readonly #flush = (): void => {
    const text = this.#text;
    this.#text = "";
    if (this.#waiting.length === 0 && text.length * BYTES_PER_CHAR_MAX <= this.#chunkBytesMax) {
      this.#writeText(text);
      return;
    }
    const nothingWaits = this.#waiting.length === 0;
    for (const chunk of chunksOf(Buffer.from(text), this.#chunkBytesMax, this.#shared)) this.#enqueue(chunk);
    if (nothingWaits) this.#writeOrWait();
  };

  #writeText(text: string): void {
    let bytes = 0;
    try {
      bytes = fs.writeSync(STDOUT, text);
      if (bytes >= text.length && bytes === Buffer.byteLength(text)) return;
    } catch {
      // The next try finds the same error.
    }
    this.#enqueue(Buffer.from(text).subarray(bytes));
    this.#writeOrWait();
  }

  #enqueue(chunk: Buffer): void {
    if (this.#waitingBytes + chunk.length > WAITING_BYTES_MAX) dropped.lines += linesIn(chunk);
    else {
      this.#waiting.push(chunk);
      this.#waitingBytes += chunk.length;
    }
  }

  readonly #writeOrWait = (): void => {
    this.#retry = undefined;
    this.#writeWaiting();
    if (this.#waiting.length > 0) this.#retry ??= setTimeout(this.#writeOrWait, RETRY_MS).unref();
  };

  /** @returns the code of the error that stopped it, undefined when nothing waits any more */
  #writeWaiting(): string | undefined {
    try {
      for (let chunk = this.#waiting[0]; chunk; chunk = this.#waiting[0]) {
        const bytes = fs.writeSync(STDOUT, chunk);
        this.#waitingBytes -= bytes;
        if (bytes < chunk.length) this.#waiting[0] = chunk.subarray(bytes);
        else this.#waiting.shift();
      }
      return undefined;
    } catch (error) {
      const { code = "unknown" } = error as NodeJS.ErrnoException;
      // The reader has gone. A named pipe may be opened again, so later lines are tried.
      if (code === "EPIPE") this.#dropWaiting();
      return code;
    }
  }

  #dropWaiting(): void {
    for (const chunk of this.#waiting) dropped.lines += linesIn(chunk);
    this.#waiting.length = 0;
    this.#waitingBytes = 0;
  }
}

let isUnblocked = false;

/** Makes a pipe or socket at standard output non-blocking, as Node does with its stream. Files and terminals stay as they are. */
function unblockStdout(): void {
  if (isUnblocked) return;
  isUnblocked = true;
  const stdout = fs.fstatSync(STDOUT);
  if (stdout.isFIFO() || stdout.isSocket()) process.stdout.on("error", () => undefined);
}

const pause = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
