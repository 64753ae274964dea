import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { type ApiAnswer, commonHeaders } from "../domain/envelope.ts";
import { type LimitState, noLimits } from "../domain/limits.ts";
import type { RequestTrace } from "../telemetry/trace.ts";
import type { KeyUsage } from "./key-usage.ts";

/** One request on the public port and its response. */
export interface Exchange {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  /** The gateway's own id: names the request in the store, in the ledger, in the log and for the upstream. */
  readonly requestId: string;
  /** The id in the response: the client's own X-Request-Id if it is well-formed, else `requestId`. Decision 0024. */
  shownId: string;
  /** Undefined without tracing. */
  trace?: RequestTrace | undefined;
  /** `performance.now()` when the headers were complete. */
  readonly startedMs: number;
  /** Route template for logs and metrics; a closed set. */
  route: string;
  /** The values of the rate-limit headers; zeros until a script has answered. */
  state: LimitState;
  /** Keeps the key's rate-limit state for later responses; set once the key is known. */
  keyUsage?: KeyUsage;
  /** Counts this request among the requests in flight of its key. */
  countedIn?: KeyUsage;
  keyId?: string;
  accountId?: string;
  taskId?: string;
  /** Price of a generation in credits, charged or not. */
  price?: number;
  /** Time spent waiting for the upstream, ms. */
  upstreamMs?: number;
  /** Limits in shadow mode that would have refused it. */
  shadow?: readonly string[];
  /** Time spent waiting for the client's JSON, ms. */
  bodyMs?: number;
  /** Time spent waiting for the store, ms; measured only if slow requests are logged or traced. */
  storeMs?: number;
  /** True when the request passed unmetered because the store was unavailable. */
  degraded?: boolean;
  /** True when the client went away before its response could be written. */
  clientGone?: boolean;
  /** Length of the response's body, once it is written. */
  responseBytes?: number;
  /** The client asked for `100 Continue` and waits for it. */
  expectsContinue: boolean;
  /** The answer to a request whose body turned out to be malformed; it is written on the bare socket. */
  malformedBodyAnswer?: Promise<ApiAnswer>;
}

const RUN = randomBytes(4).toString("hex");
let count = 0;
let startAtMs = Number.NaN;
let start = "";

/** Short, unique across processes and restarts, and sorted by time within a process. */
export function newRequestId(): string {
  const nowMs = Date.now();
  if (nowMs !== startAtMs) start = `req_${nowMs.toString(36)}${RUN}`;
  startAtMs = nowMs;
  count = (count + 1) % 0x7fffffff;
  return start + count.toString(36).padStart(6, "0");
}

export function openExchange(req: IncomingMessage, res: ServerResponse, expectsContinue: boolean): Exchange {
  const requestId = newRequestId();
  return {
    req,
    res,
    requestId,
    shownId: requestId,
    startedMs: performance.now(),
    route: "none",
    state: noLimits(Date.now()),
    expectsContinue,
  };
}

/** Not an id that looks like the gateway's own (`req_`), nor a key or a token of the management API, which must not get into a log. */
const CLIENT_ID = /^(?!req_)(?!.*(?:sk|tgm)_)[A-Za-z0-9._-]{1,64}$/i;

/** Takes the client's X-Request-Id if it is well-formed. It is only returned and logged. */
export function takeRequestId(exchange: Exchange, given: string | undefined): void {
  if (given !== undefined && CLIENT_ID.test(given)) exchange.shownId = given;
}

/** Sends `100 Continue` once, before the body is read. RFC 9110 section 10.1.1. */
export function continueReading(exchange: Exchange): void {
  if (!exchange.expectsContinue) return;
  exchange.expectsContinue = false;
  exchange.res.writeContinue();
}

/**
 * Writes the response with the headers that every response has.
 * @param close ends the connection after it: the rest of the request cannot be trusted or is not worth reading
 * @returns false when the client has gone
 */
export function respond(exchange: Exchange, answer: ApiAnswer, close: boolean): boolean {
  const { res } = exchange;
  if (res.headersSent || res.destroyed) return false;
  res.writeHead(answer.status, headersOf(exchange, answer, close));
  res.end(answer.body);
  return true;
}

/** The response's headers as a flat list of names and values. @param close as in `respond` */
export function headersOf(exchange: Exchange, answer: ApiAnswer, close: boolean): string[] {
  const { res, state, requestId, shownId } = exchange;
  const headers = commonHeaders(state, shownId, Buffer.byteLength(answer.body));
  if (shownId !== requestId) headers.push("X-Gateway-Request-Id", requestId);
  if (exchange.degraded) headers.push("X-Gateway-Degraded", "store");
  if (close) headers.push("Connection", "close");
  // Without it Node ends the connection of a client that was not told to continue, even if its body has come.
  else if (exchange.expectsContinue && res.shouldKeepAlive) headers.push("Connection", "keep-alive");
  if (answer.headers) headers.push(...answer.headers);
  return headers;
}
