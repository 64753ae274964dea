import { type Dispatcher, Pool } from "undici";
import type { Gate } from "./gate.ts";
import { ANSWER_BYTES_MAX, LargeAnswers, SMALL_ANSWER_BYTES } from "./large-answers.ts";
import { withoutSecret } from "./secret.ts";
import { SpacedWork } from "./spaced-work.ts";

/** One upstream exchange as it ended. `unsent` and `lost` differ in one thing that decides over money. */
export type Exchanged =
  | { outcome: "answered"; status: number; retryAfter: string | undefined; body: string }
  /** No byte of the request can have reached the upstream. */
  | { outcome: "unsent"; detail: string }
  /** The request went out; what became of it is not known. */
  | { outcome: "lost"; timedOut: boolean; detail: string };

export interface ExchangeOptions {
  /** Origin and optional base path, no trailing slash. */
  url: string;
  apiKey: string | undefined;
  /** Certificates, PEM, that the upstream is checked with; undefined for Node's own. */
  tlsCa?: string | undefined;
  connectTimeoutMs: number;
  headersTimeoutMs: number;
  totalTimeoutMs: number;
  /** Sockets, and so requests in flight, at most. */
  connections: number;
  /** How long an idle connection is kept, unless the upstream says otherwise in its own Keep-Alive header. */
  keepAliveTimeoutMs: number;
  /** Where large answers are parsed, by all that share it one at a time. */
  largeAnswerWork?: SpacedWork | undefined;
}

export interface UpstreamRequest {
  method: "GET" | "POST";
  path: string;
  /** Flat name, value pairs beside authorization. */
  headers: readonly string[];
  body: string | null;
  /** How long the whole exchange may take; the total timeout by default. */
  budgetMs?: number;
  /** The gate that the request has entered, and as whose; none where nothing else uses the pool. */
  gate?: Pick<Gate, "keep" | "leave">;
  owner: string;
}

/**
 * A pool of connections to the upstream. Whoever sends has entered a gate before and leaves it afterwards, so that a
 * connection is free for each request and none waits in the pool. `send` always settles, at the end of its budget at the
 * latest.
 */
export function createExchanger(options: ExchangeOptions) {
  const { origin, pathname } = new URL(options.url);
  const basePath = pathname === "/" ? "" : pathname;
  const open = (): Pool =>
    new Pool(origin, {
      connections: options.connections,
      pipelining: 1,
      // Over HTTP/2 undici sends a request again by itself that the upstream says it has not run.
      allowH2: false,
      connect: { timeout: options.connectTimeoutMs, ca: options.tlsCa },
      headersTimeout: options.headersTimeoutMs,
      bodyTimeout: options.totalTimeoutMs,
      keepAliveTimeout: options.keepAliveTimeoutMs,
      keepAliveMaxTimeout: 60_000,
    });
  let pool = open();
  const authorization = options.apiKey === undefined ? [] : ["authorization", `Bearer ${options.apiKey}`];
  const clean = withoutSecret(options.apiKey);
  const largeAnswers = new LargeAnswers(options.largeAnswerWork ?? new SpacedWork());

  return {
    /** Sends one request. Never retries: a connection that breaks after the request went out may have run it. */
    send(request: UpstreamRequest): Promise<Exchanged> {
      const { method, path, headers, body } = request;
      return new Promise((resolve) => {
        const budgetMs = request.budgetMs ?? options.totalTimeoutMs;
        const sending = new Sending(resolve, clean, request, largeAnswers, budgetMs);
        // undici looks at an idle connection once more and writes at the end of the turn, as we do: decision 0026.
        const dispatched = { path: basePath + path, method, headers: [...authorization, ...headers], body };
        pool.dispatch(dispatched, sending);
      });
    },
    /**
     * Later requests go out on new connections: an upstream that has answered once too often on one of these gives
     * every request there the answer of the one before it.
     */
    reset(): void {
      void pool.close();
      pool = open();
    },
    close: (): Promise<void> => pool.destroy(),
  };
}

export type Exchanger = ReturnType<typeof createExchanger>;

/** A request under way, told by undici how it goes. One object: a closure for each event would cost each request more. */
class Sending implements Dispatcher.DispatchHandler {
  readonly #resolve: (result: Exchanged) => void;
  readonly #clean: (text: string) => string;
  readonly #request: UpstreamRequest;
  readonly #largeAnswers: LargeAnswers;
  readonly #deadline: NodeJS.Timeout;
  #controller: Dispatcher.DispatchController | undefined;
  #started = false;
  #settled = false;
  /** Given up while its connection was still being made, which it occupies until that has an end. */
  #abandoned = false;
  #status = 0;
  #retryAfter: string | undefined;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  /** This answer, once it is a large one. */
  #large: Dispatcher.DispatchController | undefined;

  constructor(
    resolve: (result: Exchanged) => void,
    clean: (text: string) => string,
    request: UpstreamRequest,
    largeAnswers: LargeAnswers,
    budgetMs: number,
  ) {
    this.#resolve = resolve;
    this.#clean = clean;
    this.#request = request;
    this.#largeAnswers = largeAnswers;
    this.#deadline = setTimeout(Sending.#expire, budgetMs, this, budgetMs);
  }

  static #expire(sending: Sending, budgetMs: number): void {
    if (!sending.#started) {
      sending.#abandoned = true;
      sending.#request.gate?.keep(sending.#request.owner);
    }
    sending.#fail(true, `no complete answer within ${budgetMs} ms`);
  }

  #settle(result: Exchanged): void {
    if (this.#settled) return;
    this.#settled = true;
    clearTimeout(this.#deadline);
    if (this.#large) this.#largeAnswers.leave(this.#large);
    this.#resolve(result);
  }

  #fail(timedOut: boolean, detail: string): void {
    this.#settle(this.#started ? { outcome: "lost", timedOut, detail } : { outcome: "unsent", detail });
    this.#controller?.abort(new Error("given up"));
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // Given up while its connection was made: it must not go out any more.
    if (this.#settled) controller.abort(new Error("given up"));
    else this.#started = true;
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
    this.#largeAnswers.enter(controller);
  }

  onResponseEnd(): void {
    if (!this.#large) {
      this.#read();
      return;
    }
    // It has come in time. It keeps its place until it is parsed, and so no more wait for that than there are places.
    clearTimeout(this.#deadline);
    this.#largeAnswers.parse(() => this.#read());
  }

  /** Everything that follows in the same tick, the parsing included, is part of this. */
  #read(): void {
    const chunks = this.#chunks;
    const text = (chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)).toString("utf8");
    const body = this.#clean(text);
    this.#settle({ outcome: "answered", status: this.#status, retryAfter: this.#retryAfter, body });
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: NodeJS.ErrnoException): void {
    if (this.#abandoned) this.#request.gate?.leave(this.#request.owner);
    this.#abandoned = false;
    const { code } = error;
    const timedOut = code === "UND_ERR_HEADERS_TIMEOUT" || code === "UND_ERR_BODY_TIMEOUT";
    this.#fail(timedOut, code === undefined ? error.message : `${code}: ${error.message}`);
  }
}
