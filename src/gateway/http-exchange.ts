import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Config } from "../config/config.ts";
import { type ApiAnswer, commonHeaders, noLimits } from "../domain/envelope.ts";
import type { Refusal } from "../domain/errors.ts";
import type { LimitState } from "../domain/limits.ts";
import type { KeyRef } from "../records/names.ts";
import type { Holds } from "../settlement/holds.ts";
import type { Store } from "../settlement/store.ts";
import { type LoggedRequest, type Logger, logRequest, logSlow } from "../telemetry/log.ts";
import { madeOnce, type Observations, type Series } from "../telemetry/metrics/series.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Carried, OpenSpan, RequestTrace, Tracing } from "../telemetry/trace.ts";
import type { TaskUpstream } from "../upstream/task-upstreams.ts";
import type { UploadTunnel } from "../upstream/upload-stream.ts";
import type { Upstream } from "../upstream/upstream.ts";
import type { ClientAddress } from "./address.ts";
import type { Authenticator } from "./authenticate.ts";
import type { BodyBudget, BodyRead } from "./body.ts";
import type { Callbacks } from "./callbacks.ts";
import { type KeyUsage, type KeyUsages, keepState, type OverLimitCache } from "./key-memory.ts";
import { type PollSummary, TASK_TEMPLATE } from "./poll-summary.ts";
import type { RequestHead } from "./protocol.ts";
import type { FallbackMemory } from "./unmetered.ts";
import type { UsageAnswer, UsageQuestion } from "./usage.ts";

export interface Exchange extends LoggedRequest {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  /** The gateway's own id: names the request in the store, in the ledger, in the log and for the upstream. */
  readonly requestId: string;
  trace: RequestTrace | undefined;
  /** `performance.now()` when the headers were complete. */
  readonly startedMs: number;
  /** The values of the rate-limit headers; zeros until a script has answered. */
  state: LimitState;
  /** Keeps the key's rate-limit state for later responses; set once the key is known. */
  keyUsage: KeyUsage | undefined;
  /** Counts this request among the requests in flight of its key. */
  countedIn: KeyUsage | undefined;
  bodyMs: number | undefined;
  /** Time spent waiting for the store, ms; measured only if slow requests are logged or traced. */
  storeMs: number | undefined;
  responseBytes: number | undefined;
  expectsContinue: boolean;
  /** The rest of the body is not read, not even to discard it: the connection ends with the response. */
  leavesBody: boolean | undefined;
  /** Its line is written at `debug`: one of many like it. */
  isQuiet: boolean | undefined;
  /** The answer to a request whose body turned out to be malformed; it is written on the bare socket. */
  malformedBodyAnswer: Promise<ApiAnswer> | undefined;
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
    // All fields from the start: one that is added later moves the object's fields to an array that grows.
    trace: undefined,
    keyUsage: undefined,
    countedIn: undefined,
    keyId: undefined,
    accountId: undefined,
    taskId: undefined,
    price: undefined,
    upstreamMs: undefined,
    shadow: undefined,
    bodyMs: undefined,
    storeMs: undefined,
    degraded: undefined,
    clientGone: undefined,
    responseBytes: undefined,
    leavesBody: undefined,
    isQuiet: undefined,
    malformedBodyAnswer: undefined,
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

/** @param close ends the connection after it: the rest cannot be trusted or is not worth reading @returns false when the client has gone */
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

/** A configuration and what is made from it; one applies to the whole of a request. */
export interface Snapshot {
  readonly config: Config;
  readonly upstream: Upstream;
}

export interface Live {
  snapshot: Snapshot;
}

/** Everything that handlers use; built once in gateway/listener.ts. */
export interface Gateway {
  live: Live;
  store: Store & Holds;
  /** The upstream that made a task, by the tag that is stored with the task; undefined for a task that was restored. */
  upstreamOf(tag: string | undefined, config: Config): TaskUpstream;
  uploads(config: Config): UploadTunnel;
  authenticator: Authenticator<KeyRef>;
  clientAddress: ClientAddress;
  /** The address of a client; of an IPv6 client the whole address, while `clientAddress` gives its block. */
  exactAddress: ClientAddress;
  callbacks: Callbacks | undefined;
  bodies: BodyBudget;
  bodyRead: BodyRead;
  /** The account is throttled for the rest of this request's body, and not the address. */
  uploadStarted(req: IncomingMessage, accountId: string): void;
  /** Counts a request of a valid key whose X-Forwarded-For is not trusted, and logs a warning. */
  noteUntrustedProxy(peer: string): void;
  overLimit: OverLimitCache;
  keyUsages: KeyUsages;
  fallback: FallbackMemory;
  usageOf(accountId: string, question: UsageQuestion): Promise<UsageAnswer>;
  /** During maintenance generations and uploads are refused. */
  maintenance: { readonly current: { retryAfterSeconds: number; message: string | undefined } | undefined };
  /** Keeps a refusal of a known key for operators; `outcome` is the name in the error table. */
  countRefusal(exchange: Exchange, outcome: string, refused: Refusal | undefined): void;
  metrics: Metrics;
  holds: Series;
  upstreamSeconds(kind: string, outcome: string): Observations;
  tracing: Tracing;
  log: Logger;
  isDraining: boolean;
}

export interface RequestContext extends Snapshot {
  gateway: Gateway;
  exchange: Exchange;
  head: RequestHead;
  key: KeyRef;
  token: string;
  usage: KeyUsage;
}

/** Awaits a script of the store; measures its time and its span where the configuration asks for them. */
export async function storeStep<T>(
  { config, exchange }: RequestContext,
  script: string,
  work: Promise<T>,
): Promise<T> {
  const spans = exchange.trace?.spans;
  if (spans === undefined && config.log.slowRequestMs === 0) return work;
  const startedMs = performance.now();
  const span = spans?.store(script);
  let outcome: string | undefined;
  try {
    const result = await work;
    if (span) outcome = outcomeOf(result);
    return result;
  } finally {
    exchange.storeMs = (exchange.storeMs ?? 0) + performance.now() - startedMs;
    span?.end(outcome);
  }
}

function outcomeOf(result: unknown): string {
  if (typeof result === "string") return result;
  if (typeof result === "object" && result !== null && "outcome" in result) return String(result.outcome);
  // The store is unavailable: the settlement is sent later.
  return result === undefined ? "later" : "ok";
}

const METHODS = { generate: "POST", poll: "GET", upload: "POST" } as const;

/** One upstream exchange of a request: measures its time and its span. */
export class UpstreamStep {
  readonly #context: RequestContext;
  readonly #kind: keyof typeof METHODS;
  readonly #startedMs = performance.now();
  readonly #span: (OpenSpan & Carried) | undefined;

  constructor(context: RequestContext, kind: keyof typeof METHODS) {
    const { route, trace } = context.exchange;
    this.#context = context;
    this.#kind = kind;
    this.#span = trace?.spans?.upstream(METHODS[kind], route);
  }

  get carried(): Carried | undefined {
    return this.#span ?? this.#context.exchange.trace;
  }

  /** @param result how the exchange ended @returns the same */
  end<T extends { outcome: string }>(result: T): T {
    const { gateway, exchange } = this.#context;
    exchange.upstreamMs = performance.now() - this.#startedMs;
    gateway.upstreamSeconds(this.#kind, result.outcome).add(exchange.upstreamMs / 1000);
    this.#span?.end(result.outcome);
    return result;
  }
}

const CLASSES = ["", "1xx", "2xx", "3xx", "4xx", "5xx"];

/** Completes a request once: frees its place, keeps the key's headers, counts, logs, ends its trace. Without an answer its client went away. */
export function createCompletion(
  gateway: Gateway,
  polls: PollSummary,
): (exchange: Exchange, answer: ApiAnswer | undefined) => void {
  const { requests, requestSeconds } = gateway.metrics;
  const countsOf = madeOnce((route, outcome, status) => ({
    requests: requests.series({ route, status, outcome }),
    seconds: requestSeconds.of({ route, class: CLASSES[Math.floor(status / 100)]! }),
  }));
  return (exchange, answer) => {
    const status = answer?.status ?? 499;
    const outcome = answer?.outcome ?? "client_gone";
    const elapsedMs = performance.now() - exchange.startedMs;
    // A limit of zero means that no script has answered.
    if (exchange.keyUsage && exchange.state.limit > 0 && !exchange.degraded)
      keepState(exchange.keyUsage, exchange.state);
    if (exchange.countedIn) exchange.countedIn.inFlight--;
    const counts = countsOf(exchange.route, outcome, status);
    counts.requests.pending++;
    counts.seconds.add(elapsedMs / 1000);
    if (answer && status >= 400 && status < 500 && exchange.accountId !== undefined) {
      gateway.countRefusal(exchange, outcome, answer.refused);
    }
    const isPoll = isQuietPoll(exchange, gateway);
    const isQuiet = status < 500 && (isPoll || exchange.isQuiet === true);
    if (isQuiet && isPoll) polls.add(status, elapsedMs);
    const { log, live } = gateway;
    const level = status >= 500 ? "warn" : isQuiet ? "debug" : "info";
    logRequest(log, level, exchange, { status, outcome, elapsedMs, refused: answer?.refused });
    const { slowRequestMs } = live.snapshot.config.log;
    if (slowRequestMs > 0) logSlow(log, slowRequestMs, elapsedMs, exchange);
    exchange.trace?.spans?.end({ ...exchange, method: exchange.req.method, status, outcome });
  };
}

const isQuietPoll = ({ route }: Exchange, { live }: Gateway): boolean =>
  route === TASK_TEMPLATE && live.snapshot.config.log.polls === "debug";
