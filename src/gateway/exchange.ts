import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { type Answer, commonHeaders } from "../domain/envelope.ts";
import { type LimitState, noLimits } from "../domain/limits.ts";
import type { RequestTrace } from "../telemetry/trace.ts";

/** One request on the public port, from its headers to the end of its answer. */
export interface Exchange {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  /** Our own id: names the request in the store, in the ledger, in the log and towards the upstream. */
  readonly requestId: string;
  /** What the client is told: its own X-Request-Id where that could be taken, else ours. Decision 0024. */
  shownId: string;
  /** Its place in a trace; undefined: in none. */
  trace?: RequestTrace | undefined;
  /** `performance.now()` when the headers were complete. */
  readonly startedMs: number;
  /** Route template for logs and metrics; a closed set. */
  route: string;
  /** What the rate-limit headers will say; zeros until a script has answered. */
  state: LimitState;
  /** Where the key's numbers are kept for later answers; set once the key is known. */
  lastKnown?: { state: LimitState | undefined };
  /** Of the requests under way of a key, it is one. */
  countedIn?: { underWay: number };
  keyId?: string;
  accountId?: string;
  taskId?: string;
  /** What a generation costs, in credits, be it charged or not. */
  price?: number;
  /** Time spent waiting for the upstream, ms. */
  upstreamMs?: number;
  /** Limits in shadow mode that would have refused it. */
  shadow?: readonly string[];
  /** Time spent waiting for the client's JSON, ms. */
  bodyMs?: number;
  /** Time spent waiting for the store, ms; kept only where somebody wants to know. */
  storeMs?: number;
  /** True when the store was away and the request went through unmetered. */
  degraded?: boolean;
  /** True when the client had gone before its answer could be written. */
  clientGone?: boolean;
  /** Length of its answer, once that was written. */
  answerBytes?: number;
  /** The client asked for `100 Continue` and waits for it. */
  expectsContinue: boolean;
  /** Its body turned out to be malformed: this is its answer, written on the bare socket. */
  broken?: Promise<Answer>;
}

const RUN = randomBytes(4).toString("hex");
let count = 0;

/** Unique over processes and restarts, short, and sorted by time within a process. */
export function newRequestId(): string {
  count = (count + 1) % 0x7fffffff;
  return `req_${Date.now().toString(36)}${RUN}${count.toString(36).padStart(6, "0")}`;
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

/** Ids of ours begin with `req_`, so that a client's is never taken for one; API keys have no place in a log. */
const CLIENT_ID = /^(?!req_)(?!.*sk_)[A-Za-z0-9._-]{1,64}$/i;

/** Takes the client's X-Request-Id, if it is well-formed: it is answered and logged, and decides nothing. */
export function takeRequestId(exchange: Exchange, given: string | undefined): void {
  if (given !== undefined && CLIENT_ID.test(given)) exchange.shownId = given;
}

/** Sends `100 Continue` once, when the body is about to be read. RFC 9110 section 10.1.1. */
export function continueReading(exchange: Exchange): void {
  if (!exchange.expectsContinue) return;
  exchange.expectsContinue = false;
  exchange.res.writeContinue();
}

/**
 * Writes the answer with the headers that every answer has. Does nothing when the client has gone.
 * @returns whether there was somebody to write to
 * @param close ends the connection after it: the rest of the request cannot be trusted or is not worth reading
 */
export function respond(exchange: Exchange, answer: Answer, close: boolean): boolean {
  const { res } = exchange;
  if (res.headersSent || res.destroyed) return false;
  res.writeHead(answer.status, headersOf(exchange, answer, close));
  res.end(answer.body);
  return true;
}

/** The header lines of an answer, names and values by turns. @param close as in `respond` */
export function headersOf(exchange: Exchange, answer: Answer, close: boolean): string[] {
  const { res, state, requestId, shownId } = exchange;
  const headers = commonHeaders(state, shownId, Buffer.byteLength(answer.body));
  if (shownId !== requestId) headers.push("X-Gateway-Request-Id", requestId);
  if (exchange.degraded) headers.push("X-Gateway-Degraded", "store");
  if (close) headers.push("Connection", "close");
  // Else Node ends the connection of a client that was not told to continue, though its body has come.
  else if (exchange.expectsContinue && res.shouldKeepAlive) headers.push("Connection", "keep-alive");
  if (answer.headers) headers.push(...answer.headers);
  return headers;
}
