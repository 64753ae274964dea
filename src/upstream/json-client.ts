import { buildConnector, type Dispatcher, Pool } from "undici";
import type { FairGate } from "../domain/fair-gate.ts";
import type { Carried } from "../telemetry/trace.ts";
import type { Adapter } from "./adapter.ts";
import type { Answer } from "./answer.ts";
import { type GatewayIdentity, gatewayHeaders } from "./gateway-headers.ts";
import { withoutInterimAnswers } from "./interim-answers.ts";
import { ANSWER_BYTES_MAX, LargeAnswers, SMALL_ANSWER_BYTES } from "./large-answers.ts";
import { SpacedWork } from "./spaced-work.ts";

/** How an exchange with the upstream ended. After `not_sent` the upstream can have made no task; after `lost` it may have. */
export type ExchangeResult =
  | ({ outcome: "answered" } & Answer)
  /** No byte of the request can have reached the upstream. */
  | { outcome: "not_sent"; detail: string }
  /** The request was sent; its outcome is unknown. `received` is the beginning of an answer, if any of it has come. */
  | { outcome: "lost"; timedOut: boolean; detail: string; received?: Answer };

/** Without Accept-Encoding an upstream may choose any. RFC 9110 12.5.3. */
export const ACCEPT_JSON = ["accept", "application/json", "accept-encoding", "identity"] as const;

/** What is kept of an answer that did not come whole: it is for the log. */
const RECEIVED_BYTES = 1024;

/** How the upstream is connected to over TLS. PEM. */
export interface UpstreamTls {
  /** Authorities for the upstream's certificate; undefined for Node's own. */
  tlsCa?: string | undefined;
  /** The gateway's own certificate, for an upstream that asks for one. */
  tlsCert?: string | undefined;
  tlsKey?: string | undefined;
}

/** TLS options of Node for a connection to the upstream. */
export const tlsOptions = ({ tlsCa, tlsCert, tlsKey }: UpstreamTls) => ({
  ...(tlsCa !== undefined && { ca: tlsCa }),
  ...(tlsCert !== undefined && { cert: tlsCert }),
  ...(tlsKey !== undefined && { key: tlsKey }),
});

export interface JsonClientOptions extends GatewayIdentity, UpstreamTls {
  /** Origin and optional base path, no trailing slash. */
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
  /** The trace that the request belongs to. */
  carried?: Carried | undefined;
  /** How long the whole exchange may take; the total timeout by default. */
  budgetMs?: number;
  /** The gate that the request has entered, and its owner there; none where nothing else uses the pool. */
  gate?: FairGate;
  owner: string;
}

/**
 * Sends JSON requests over a pool of connections. Callers enter a gate before and leave it afterwards, so that a connection is
 * free for each request and none waits in the pool. `send` settles at the end of its budget at the latest.
 */
export function createJsonClient(options: JsonClientOptions) {
  const { origin, pathname } = new URL(options.url);
  const basePath = pathname === "/" ? "" : pathname;
  const connect = buildConnector({
    ...tlsOptions(options),
    timeout: options.connectTimeoutMs,
    allowH2: false,
  });
  const open = (): Pool =>
    new Pool(origin, {
      connections: options.connections,
      pipelining: 1,
      // Over HTTP/2, undici repeats a request on its own if the upstream says that it has not run it.
      allowH2: false,
      connect: (to, connected) =>
        connect(to, (...result) =>
          result[0] ? connected(...result) : connected(null, withoutInterimAnswers(result[1])),
        ),
      headersTimeout: options.headersTimeoutMs,
      bodyTimeout: options.totalTimeoutMs,
      keepAliveTimeout: options.keepAliveTimeoutMs,
      keepAliveMaxTimeout: 60_000,
    });
  let pool = open();
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
      const headers = ownHeaders.concat(request.headers, carried?.headers ?? []);
      return new Promise((resolve) => {
        const handler = new UpstreamRequest(request, budgetMs, shared, resolve);
        // undici checks an idle connection once more and writes at the end of the tick, as we do: decision 0020.
        pool.dispatch({ path: basePath + path, method, headers, body }, handler);
      });
    },
    /**
     * Sends later requests over new connections. An upstream that once sent an extra response on a connection answers every
     * later request there with the response to the one before.
     */
    reset(): void {
      void pool.close();
      pool = open();
    },
    close: (): Promise<void> => pool.destroy(),
  };
}

export type JsonClient = ReturnType<typeof createJsonClient>;

/** What the requests of a client share. */
interface Shared {
  redact(text: string): string;
  redactEnd(text: string): string;
  largeAnswers: LargeAnswers;
  largeAnswerWork: SpacedWork;
}

/** A request in progress, as undici's handler. One object, since a closure for each event would cost each request more. */
class UpstreamRequest implements Dispatcher.DispatchHandler {
  readonly #request: JsonRequest;
  readonly #shared: Shared;
  readonly #resolve: (result: ExchangeResult) => void;
  readonly #deadline: NodeJS.Timeout;
  #controller: Dispatcher.DispatchController | undefined;
  #started = false;
  #settled = false;
  /** Aborted before its connection was made; it occupies the connection until that succeeds or fails. */
  #abandoned = false;
  #status = 0;
  #retryAfter: string | undefined;
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  /** The controller of a large answer. */
  #large: Dispatcher.DispatchController | undefined;

  constructor(
    request: JsonRequest,
    budgetMs: number,
    shared: Shared,
    resolve: (result: ExchangeResult) => void,
  ) {
    this.#request = request;
    this.#shared = shared;
    this.#resolve = resolve;
    this.#deadline = setTimeout(UpstreamRequest.#expire, budgetMs, this, budgetMs);
  }

  static #expire(request: UpstreamRequest, budgetMs: number): void {
    if (!request.#started) {
      request.#abandoned = true;
      request.#request.gate?.occupy(request.#request.owner);
    }
    request.#fail(true, `no complete answer within ${budgetMs} ms`);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // Its deadline passed while its connection was made: it must not be sent any more.
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
    this.#shared.largeAnswers.enter(controller);
  }

  onResponseEnd(): void {
    if (!this.#large) {
      this.#read();
      return;
    }
    // It has arrived in time. It keeps its place until it is parsed, so no more answers wait for parsing than there are places.
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
    const timedOut = code === "UND_ERR_HEADERS_TIMEOUT" || code === "UND_ERR_BODY_TIMEOUT";
    this.#fail(timedOut, code === undefined ? error.message : `${code}: ${error.message}`);
  }

  #fail(timedOut: boolean, detail: string): void {
    const lost = { outcome: "lost", timedOut, detail } as const;
    if (!this.#started) this.#settle({ outcome: "not_sent", detail });
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

const REDACTED = "[redacted]";
/** A shorter credential may be part of an unrelated word, as `task` is of `task_id`. */
const SHORT = 8;
/** Nearly all answers are shorter. */
const PLAIN_CHARS_MAX = 4096;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const ASCII = 128;
/** The two-character escapes of JSON, by the code after the backslash; 0 for no escape. RFC 8259 section 7. */
const ESCAPES = new Uint8Array(ASCII);
for (const [letter, char] of Object.entries({ b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" }))
  ESCAPES[letter.charCodeAt(0)] = char.charCodeAt(0);
for (const char of '"\\/') ESCAPES[char.charCodeAt(0)] = char.charCodeAt(0);
/** The values of hexadecimal digits, by their codes; -1 for no digit. */
const DIGITS = new Int8Array(ASCII).fill(-1);
for (const char of "0123456789abcdefABCDEF") DIGITS[char.charCodeAt(0)] = Number.parseInt(char, 16);

/**
 * Keeps our credential, repeated in an upstream's answer, from customers and from the log.
 * @returns replaces the credential in an answer's text, in every spelling that JSON allows; a credential of less than
 *   eight characters only where it is a whole word. Takes time linear in the text, whatever the text is. Decision 0035.
 */
export function withoutSecret(secret: string | undefined): (text: string) => string {
  if (!secret) return (text) => text;
  const wanted = Uint16Array.from({ length: secret.length }, (_, at) => secret.charCodeAt(at));
  const borders = bordersOf(wanted);
  const standsAlone = secret.length < SHORT;
  return (text) => {
    // Without an escape there is one spelling. The engine's own search is not linear in every case, so its text is short.
    const isPlain = text.length <= PLAIN_CHARS_MAX && !text.includes("\\");
    const isClean = isPlain ? !text.includes(secret) : !holds(text, wanted, borders);
    return isClean ? text : redact(text, wanted, borders, standsAlone);
  };
}

/** Removes the beginning of our credential at the end of a text that was cut there. */
export function withoutBegunSecret(secret = ""): (text: string) => string {
  return (text) => {
    for (let chars = secret.length - 1; chars > 0; chars--)
      if (text.endsWith(secret.slice(0, chars))) return text.slice(0, -chars);
    return text;
  };
}

/** Whether the text contains the credential in any spelling. Nearly always it does not, and `redact` takes longer. */
function holds(text: string, wanted: Uint16Array, borders: Uint32Array): boolean {
  const { length } = text;
  for (let at = 0, matched = 0; at < length; ) {
    let code = text.charCodeAt(at);
    if (code === BACKSLASH) {
      const char = escapeAt(text, at);
      code = char >> UNITS_BITS;
      at += char & UNITS_MASK;
    } else {
      at++;
    }
    while (matched > 0 && code !== wanted[matched]) matched = borders[matched - 1]!;
    if (code === wanted[matched] && ++matched === wanted.length) return true;
  }
  return false;
}

/**
 * The failure function of Knuth, Morris and Pratt: for each prefix the length of its longest proper prefix that is also
 * its suffix. With it a search never goes back in the text.
 */
function bordersOf(wanted: Uint16Array): Uint32Array {
  const borders = new Uint32Array(wanted.length);
  for (let at = 1, border = 0; at < wanted.length; at++) {
    while (border > 0 && wanted[at] !== wanted[border]) border = borders[border - 1]!;
    if (wanted[at] === wanted[border]) border++;
    borders[at] = border;
  }
  return borders;
}

function redact(text: string, wanted: Uint16Array, borders: Uint32Array, standsAlone: boolean): string {
  // A ring of the latest characters, one more than the credential has: where each begins and which it is.
  const size = wanted.length + 1;
  const begins = new Uint32Array(size);
  const codes = new Uint16Array(size);
  let slot = 0;
  let kept = 0;
  let clean = "";
  let matched = 0;
  for (let at = 0, count = 0; at < text.length; count++) {
    const char = charAt(text, at);
    const code = char >> UNITS_BITS;
    slot = slot + 1 === size ? 0 : slot + 1;
    begins[slot] = at;
    codes[slot] = code;
    at += char & UNITS_MASK;
    while (matched > 0 && code !== wanted[matched]) matched = borders[matched - 1]!;
    if (code === wanted[matched]) matched++;
    if (matched < wanted.length) continue;
    const before = count >= wanted.length ? codes[(slot + 1) % size] : undefined;
    const after = at < text.length ? charAt(text, at) >> UNITS_BITS : undefined;
    if (standsAlone && (isWordCode(before) || isWordCode(after))) {
      matched = borders[matched - 1]!;
      continue;
    }
    clean += text.slice(kept, begins[(slot + 2) % size]) + REDACTED;
    kept = at;
    matched = 0;
  }
  return kept === 0 ? text : clean + text.slice(kept);
}

/** A character of a JSON text as one number: its code, and in the lowest bits the number of text units that spell it. */
const UNITS_BITS = 3;
const UNITS_MASK = 7;

function charAt(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code === BACKSLASH ? escapeAt(text, at) : (code << UNITS_BITS) | 1;
}

/** The character of the escape at a backslash; the backslash itself if no escape follows. */
function escapeAt(text: string, at: number): number {
  const letter = text.charCodeAt(at + 1);
  const char = letter < ASCII ? ESCAPES[letter]! : 0;
  if (char !== 0) return (char << UNITS_BITS) | 2;
  const code = letter === LETTER_U ? hexAt(text, at + 2) : -1;
  return code < 0 ? (BACKSLASH << UNITS_BITS) | 1 : (code << UNITS_BITS) | 6;
}

/** Four hexadecimal digits as a number; -1 for anything else. */
function hexAt(text: string, from: number): number {
  let value = 0;
  for (let at = from; at < from + 4; at++) {
    const code = text.charCodeAt(at);
    const digit = code < ASCII ? DIGITS[code]! : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

/** A letter, a digit, `_` or `-`. */
function isWordCode(code: number | undefined): boolean {
  if (code === undefined) return false;
  const letter = code | 0x20;
  const isAlphanumeric = (code >= 0x30 && code <= 0x39) || (letter >= 0x61 && letter <= 0x7a);
  return isAlphanumeric || code === 0x5f || code === 0x2d;
}
