import type { Socket } from "node:net";
import { buildConnector, type Dispatcher, Pool } from "undici";
import type { FairGate, GateRefusal } from "../domain/fair-gate.ts";
import type { Carried } from "../telemetry/trace.ts";
import type { Adapter } from "./adapter.ts";
import { type Answer, withoutBegunSecret, withoutSecret } from "./answer.ts";
import { type GatewayIdentity, gatewayHeaders } from "./gateway-headers.ts";
import { ANSWER_BYTES_MAX, LargeAnswers, SMALL_ANSWER_BYTES, SpacedWork } from "./large-answers.ts";

/** How an exchange with the upstream ended. After `not_sent` the upstream can have made no task; after `lost` it may have. */
export type ExchangeResult =
  | ({ outcome: "answered" } & Answer)
  /** No byte of the request can have reached the upstream. */
  | { outcome: "not_sent"; detail: string }
  /** The request was sent; its outcome is unknown. `received` is the beginning of an answer, if any of it has come. */
  | { outcome: "lost"; timedOut: boolean; detail: string; received?: Answer };

/** Without Accept-Encoding an upstream may choose any. RFC 9110 12.5.3. */
export const ACCEPT_JSON = ["accept", "application/json", "accept-encoding", "identity"] as const;

/** Kept for the log of an answer that did not come whole. */
const RECEIVED_BYTES = 1024;

export interface UpstreamTls {
  /** Authorities for the upstream's certificate; undefined for Node's own. */
  tlsCa?: string | undefined;
  /** The gateway's own certificate, for an upstream that asks for one. */
  tlsCert?: string | undefined;
  tlsKey?: string | undefined;
}

export const tlsOptions = ({ tlsCa, tlsCert, tlsKey }: UpstreamTls) => ({
  ...(tlsCa !== undefined && { ca: tlsCa }),
  ...(tlsCert !== undefined && { cert: tlsCert }),
  ...(tlsKey !== undefined && { key: tlsKey }),
});

export interface JsonClientOptions extends GatewayIdentity, UpstreamTls {
  url: string;
  /** How the adapter sends the credential, if the settings do not say. */
  auth?: Adapter["auth"];
  connectTimeoutMs: number;
  headersTimeoutMs: number;
  totalTimeoutMs: number;
  /** Sockets, and so requests in flight, at most. */
  connections: number;
  /** How long an idle connection is kept, unless the upstream's Keep-Alive header says otherwise. */
  keepAliveTimeoutMs: number;
  /** Parses large answers, some 10 ms each, one at a time for all clients that share it. */
  largeAnswerWork?: SpacedWork;
}

export interface JsonRequest {
  method: "GET" | "POST";
  path: string;
  /** Flat name, value pairs beside the gateway's own and the trace. */
  headers: readonly string[];
  body: string | null;
  carried?: Carried | undefined;
  /** How long the whole exchange may take; the total timeout by default. */
  budgetMs?: number;
  /** The gate that the request has entered, and its owner there; none where nothing else uses the pool. */
  gate?: FairGate;
  owner: string;
}

/** Callers enter a gate before, so that none waits in the pool. `send` settles at the end of its budget at the latest. */
export function createJsonClient(options: JsonClientOptions) {
  const { headersTimeoutMs } = options;
  const { origin, pathname } = new URL(options.url);
  const basePath = pathname === "/" ? "" : pathname;
  const connect = skippingInterimAnswers(
    buildConnector({ ...tlsOptions(options), timeout: options.connectTimeoutMs, allowH2: false }),
  );
  const open = (): Pool =>
    new Pool(origin, {
      connections: options.connections,
      pipelining: 1,
      // Over HTTP/2, undici repeats a request on its own if the upstream says that it has not run it.
      allowH2: false,
      connect,
      // A request limits its own time: undici's timers would outlive it by up to a second. Decision 0072.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: options.keepAliveTimeoutMs,
      keepAliveMaxTimeout: 60_000,
    });
  let pool = open();
  const closing = new Set<Pool>();
  const ownHeaders = gatewayHeaders(options, options.auth);
  const shared = {
    redact: withoutSecret(options.apiKey),
    redactEnd: withoutBegunSecret(options.apiKey),
    largeAnswers: new LargeAnswers(),
    largeAnswerWork: options.largeAnswerWork ?? new SpacedWork(),
  };

  return {
    /** Sends one request. Never retries: a connection that breaks after the request was sent may have run it. */
    send(request: JsonRequest): Promise<ExchangeResult> {
      const { method, path, body, carried, budgetMs = options.totalTimeoutMs } = request;
      const headers = [...ownHeaders, ...request.headers];
      if (carried) headers.push(...carried.headers);
      return new Promise((resolve) => {
        const handler = new UpstreamRequest(request, { headersTimeoutMs, budgetMs }, shared, resolve);
        // undici checks an idle connection once more and writes at the end of the tick, as we do: decision 0020.
        pool.dispatch({ path: basePath + path, method, headers, body }, handler);
      });
    },
    /** An upstream that once sent an extra response on a connection answers every later request there with the one before. */
    reset(): void {
      const former = pool;
      closing.add(former);
      void former.close().finally(() => closing.delete(former));
      pool = open();
    },
    async close(): Promise<void> {
      await Promise.all([pool, ...closing].map((one) => one.destroy()));
    },
  };
}

export type JsonClient = ReturnType<typeof createJsonClient>;

interface Shared {
  redact(text: string): string;
  redactEnd(text: string): string;
  largeAnswers: LargeAnswers;
  largeAnswerWork: SpacedWork;
}

interface Times {
  headersTimeoutMs: number;
  budgetMs: number;
}

/** After a stall of the process, what has arrived is read before a request counts as timed out. */
const readFirst = (request: UpstreamRequest): void => void setImmediate(() => request.expire());

class UpstreamRequest implements Dispatcher.DispatchHandler {
  readonly #request: JsonRequest;
  readonly #shared: Shared;
  readonly #resolve: (result: ExchangeResult) => void;
  readonly #times: Times;
  readonly #begunMs = performance.now();
  #deadline: NodeJS.Timeout;
  #controller: Dispatcher.DispatchController | undefined;
  /** When it was given to a connection, by `performance.now()`; undefined before. */
  #sentMs: number | undefined;
  #settled = false;
  /** The answer has arrived, and waits to be parsed. */
  #isWhole = false;
  /** Aborted before its connection was made; it occupies the connection until that succeeds or fails. */
  #abandoned = false;
  #status = 0;
  #retryAfter: string | undefined;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  #large: Dispatcher.DispatchController | undefined;

  constructor(request: JsonRequest, times: Times, shared: Shared, resolve: (result: ExchangeResult) => void) {
    this.#request = request;
    this.#times = times;
    this.#shared = shared;
    this.#resolve = resolve;
    this.#deadline = setTimeout(readFirst, Math.min(times.headersTimeoutMs, times.budgetMs), this);
  }

  expire(): void {
    if (this.#settled || this.#isWhole) return;
    const { headersTimeoutMs, budgetMs } = this.#times;
    const nowMs = performance.now();
    const endMs = this.#begunMs + budgetMs;
    const headersMs = (this.#sentMs ?? nowMs) + headersTimeoutMs;
    const dueMs = this.#status === 0 ? Math.min(headersMs, endMs) : endMs;
    if (nowMs < dueMs) {
      this.#deadline = setTimeout(readFirst, Math.ceil(dueMs - nowMs), this);
      return;
    }
    if (this.#sentMs === undefined) {
      this.#abandoned = true;
      this.#request.gate?.occupy(this.#request.owner);
    }
    const awaited =
      dueMs < endMs ? `no answer within ${headersTimeoutMs}` : `no complete answer within ${budgetMs}`;
    this.#fail(true, `${awaited} ms`);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // Its deadline passed while its connection was made: it must not be sent any more.
    if (this.#settled) controller.abort(new Error("given up"));
    else this.#sentMs = performance.now();
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    statusCode: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    this.#status = statusCode;
    const wait = headers["retry-after"];
    this.#retryAfter = Array.isArray(wait) ? wait[0] : wait;
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#settled) return;
    this.#bytes += chunk.length;
    if (this.#bytes > ANSWER_BYTES_MAX) {
      this.#fail(false, `the answer is larger than ${ANSWER_BYTES_MAX} bytes`);
      return;
    }
    this.#chunks.push(chunk);
    if (this.#large || this.#bytes <= SMALL_ANSWER_BYTES) return;
    this.#large = controller;
    this.#shared.largeAnswers.enter(controller);
  }

  onResponseEnd(): void {
    if (!this.#large) {
      this.#read();
      return;
    }
    // It has arrived in time. It keeps its place until it is parsed, so no more answers wait for parsing than there are places.
    this.#isWhole = true;
    clearTimeout(this.#deadline);
    this.#shared.largeAnswerWork.add(() => this.#read());
  }

  /** Parsing follows in the same tick, and so is part of the work that is spaced out. */
  #read(): void {
    const chunks = this.#chunks;
    const text = (chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)).toString("utf8");
    const body = this.#shared.redact(text);
    this.#request.carried?.answered?.(this.#status);
    this.#settle({ outcome: "answered", status: this.#status, retryAfter: this.#retryAfter, body });
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: NodeJS.ErrnoException): void {
    if (this.#abandoned) this.#request.gate?.leave(this.#request.owner);
    this.#abandoned = false;
    const { code } = error;
    this.#fail(false, code === undefined ? error.message : `${code}: ${error.message}`);
  }

  #fail(timedOut: boolean, detail: string): void {
    const lost = { outcome: "lost", timedOut, detail } as const;
    if (this.#sentMs === undefined) this.#settle({ outcome: "not_sent", detail });
    else this.#settle(this.#bytes === 0 ? lost : { ...lost, received: this.#received() });
    this.#controller?.abort(new Error("given up"));
  }

  #received(): Answer {
    const text = Buffer.concat(this.#chunks).toString("utf8", 0, RECEIVED_BYTES);
    const body = this.#shared.redact(this.#shared.redactEnd(text));
    return { status: this.#status, retryAfter: this.#retryAfter, body };
  }

  #settle(result: ExchangeResult): void {
    if (this.#settled) return;
    this.#settled = true;
    clearTimeout(this.#deadline);
    if (this.#large) this.#shared.largeAnswers.leave(this.#large);
    this.#resolve(result);
  }
}

// The pool's own queue has no bound, and the time that each request has for its answer runs in it: above capacity every request
// would be sent too late to be answered. A gate keeps requests out until a connection is free. Decision 0025.

/** The outcome of a request that the gate refused. @param limit the connections that it waited for, in words */
export function overloaded(refusal: GateRefusal, limit: string): { outcome: "overloaded"; detail: string } {
  switch (refusal) {
    case "queue_full":
      return { outcome: "overloaded", detail: `all of the ${limit} are in use, and as many requests wait` };
    case "waited_too_long":
      return { outcome: "overloaded", detail: `none of the ${limit} was free in time` };
    case "closed":
      return { outcome: "overloaded", detail: "the gateway stops" };
  }
}

/** A longer interim answer is left to the client, which ends the connection. */
const INTERIM_BYTES_MAX = 8192;
/** More of them before one answer end the connection. */
export const INTERIM_ANSWERS_MAX = 1000;
export const tooManyInterim = (): Error => new Error(`more than ${INTERIM_ANSWERS_MAX} interim answers`);
const HEAD_END = "\r\n\r\n";
const STATUS_AT = 9;
const ONE = 0x31;
const INTERIM = /^HTTP\/1\.[01] 1(?!01)/;

/**
 * Drops unasked interim answers (1xx, RFC 9110 15.2): undici ends the connection at a `100 Continue`, when the request may have run. 101 is
 * kept. Decision 0003. @param connect for a client that sends one request at a time on a connection
 */
export const skippingInterimAnswers =
  (connect: buildConnector.connector): buildConnector.connector =>
  (to, connected) =>
    connect(to, (...result) =>
      result[0] ? connected(...result) : connected(null, withoutInterimAnswers(result[1])),
    );

/** @param socket unread so far, read with `read()` @returns the same socket */
function withoutInterimAnswers<T extends Socket>(socket: T): T {
  const read = socket.read;
  let held: Buffer | undefined;
  let skipped = 0;
  // The first bytes after something was written are the beginning of an answer; all others are left as they are.
  let answeredBytes = socket.bytesWritten;
  socket.read = (size?: number): Buffer | null => {
    const chunk = read.call(socket, size) as Buffer | null;
    if (chunk === null) return null;
    const { bytesWritten } = socket;
    if (bytesWritten === answeredBytes) return chunk;
    const isFinal = held === undefined && chunk.length > STATUS_AT && chunk[STATUS_AT] !== ONE;
    let bytes = held === undefined ? chunk : Buffer.concat([held, chunk]);
    for (let end = isFinal ? 0 : interimEnd(bytes); end > 0; end = interimEnd(bytes), skipped++)
      bytes = bytes.subarray(end);
    if (skipped > INTERIM_ANSWERS_MAX) {
      socket.destroy(tooManyInterim());
      return null;
    }
    if (isFinal || !mayBeInterim(bytes)) {
      answeredBytes = bytesWritten;
      held = undefined;
      skipped = 0;
      return bytes;
    }
    held = bytes;
    return null;
  };
  return socket;
}

/** Where the first answer ends, if it is an interim one; otherwise 0. */
function interimEnd(bytes: Buffer): number {
  const end = INTERIM.test(statusLine(bytes)) ? bytes.indexOf(HEAD_END) : -1;
  return end === -1 ? 0 : end + HEAD_END.length;
}

/** True if these bytes can begin an interim (1xx) answer, so more must follow. */
function mayBeInterim(bytes: Buffer): boolean {
  if (bytes.length > INTERIM_BYTES_MAX) return false;
  return bytes.length < STATUS_AT + 3 || INTERIM.test(statusLine(bytes));
}

const statusLine = (bytes: Buffer): string => bytes.toString("latin1", 0, STATUS_AT + 3);
