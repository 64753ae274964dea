import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import { type Answer, commonHeaders, refusal } from "../domain/envelope.ts";
import { type Refusal, refuse } from "../domain/errors.ts";
import { noLimits } from "../domain/limits.ts";
import { HEADERS_BYTES_MAX } from "../domain/request-limits.ts";
import type { Arrival, ClientConnection, ClientConnections } from "./client-connections.ts";
import { type Exchange, headersOf, newRequestId } from "./exchange.ts";
import { createHttpServer, followConnections, renewTls, type TlsMaterial } from "./tls.ts";

interface Timeouts {
  headersTimeoutMs: number;
  keepAliveTimeoutMs: number;
  writeTimeoutMs: number;
}

export interface ListenerOptions extends Timeouts {
  /** Its connections; nobody else opens any. */
  connections: ClientConnections;
  /**
   * Serves one request; must not throw.
   * @param refused its connection came above a limit
   * @returns undefined for one that is dropped
   */
  serve(arrival: Arrival, refused: boolean): Exchange | undefined;
  /** The answer of a request whose head is served already, and whose body the parser refused; must not throw. */
  refuseBroken(exchange: Exchange, refused: Refusal): Promise<Answer>;
  /** Undefined for plain HTTP. */
  tls?: TlsMaterial | undefined;
  /** A request that Node's parser refused, answered on the bare socket. */
  parseRefused(refused: Refusal, requestId: string): void;
}

export interface Listener extends Server {
  /**
   * Ends connections that wait for no answer. `close` ends the idle ones, but a head that was begun and never
   * finished would keep it waiting: with it ends the interval that enforces the timeout of heads.
   */
  closeQuietConnections(): void;
  /** Connections that are open already heed them, too. */
  setTimeouts(timeouts: Timeouts): void;
  /** Connections from now on get this certificate. The listener must have begun with one. */
  renewTls(tls: TlsMaterial): void;
}

/**
 * The public port: a node:http server whose every automatic answer is replaced by one in our envelope.
 * Body deadlines are the readers' own, since an upload may take long and a JSON body may not.
 */
export function createListener(options: ListenerOptions): Listener {
  const { connections } = options;
  const server = createHttpServer(
    {
      headersTimeout: options.headersTimeoutMs,
      requestTimeout: 0,
      keepAliveTimeout: options.keepAliveTimeoutMs,
      connectionsCheckingInterval: 1000,
      maxHeaderSize: HEADERS_BYTES_MAX,
      requireHostHeader: false,
      insecureHTTPParser: false,
      noDelay: true,
      shouldUpgradeCallback: () => false,
    },
    options.tls,
  );
  // Lines beyond Node's default of 2,000 would vanish, Authorization among them; maxHeaderSize bounds them.
  server.maxHeadersCount = 0;
  // A client may close its sending side behind its last request; Node's types do not name the property.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.timeout = options.writeTimeoutMs;
  connections.attach({
    start: options.serve,
    settled({ socket }) {
      // Its last answer may have been written, without `close`, before the drain began.
      if (!server.listening) socket.destroySoon();
    },
  });
  takeRequests(server, connections);
  answerBroken(server, options);
  return Object.assign(server, {
    // In the place of Node's own, which `close` calls too: that ends connections whose answers are not flushed yet.
    closeIdleConnections(): void {
      // One that was never served may be sending its first request.
      for (const { socket, answers, used } of connections.all()) {
        if (answers.size === 0 && used && socket.writableLength === 0) socket.destroy();
      }
    },
    closeQuietConnections(): void {
      for (const { socket, answers } of connections.all()) if (answers.size === 0) socket.destroy();
    },
    renewTls: (tls: TlsMaterial): void => renewTls(server, tls),
    setTimeouts({ headersTimeoutMs, keepAliveTimeoutMs, writeTimeoutMs }: Timeouts): void {
      server.headersTimeout = headersTimeoutMs;
      server.keepAliveTimeout = keepAliveTimeoutMs;
      server.timeout = writeTimeoutMs;
    },
  });
}

/** Hands connections and requests to those who count them. */
function takeRequests(server: Server, connections: ClientConnections): void {
  followConnections(server, {
    opened: (socket) => connections.open(socket),
    secured: (accepted, socket) => connections.secured(accepted, socket),
  });
  server.on("timeout", (socket) => connections.timedOut(socket));
  server.on("request", (req, res) => connections.arrive({ req, res, expectsContinue: false }));
  server.on("checkContinue", (req, res) => connections.arrive({ req, res, expectsContinue: true }));
  // An Expect that Node does not understand; refused from its head.
  server.on("checkExpectation", (req, res) => connections.arrive({ req, res, expectsContinue: false }));
}

/** Answers what the parser refuses. */
function answerBroken(server: Server, options: ListenerOptions): void {
  const { connections } = options;
  server.on("connect", (_req: IncomingMessage, socket: Duplex) =>
    endBroken(
      socket,
      connections.at(socket)?.answers,
      refuse("invalid_request", { text: "Invalid request: CONNECT is not served here" }),
      options,
    ),
  );
  // The parser complains again about each further piece of a connection that it has given up.
  const broken = new WeakSet<Duplex>();
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Duplex) => {
    if (broken.has(socket)) return;
    broken.add(socket);
    // One that is not known has failed its TLS handshake.
    if (error.code === "ECONNRESET" || !socket.writable || !connections.at(socket)) socket.destroy();
    else endBroken(socket, connections.at(socket)?.answers, parseFault(error), options);
  });
}

/**
 * Answers what the parser could not read, once the whole requests before it have theirs: else a client would take
 * this answer for that of an earlier request, which may have been charged.
 * @param open answers of the connection that are unfinished, or whose requests are; oldest first
 */
function endBroken(
  socket: Duplex,
  open: ClientConnection["answers"] | undefined,
  refused: Refusal,
  options: ListenerOptions,
): void {
  const answers = [...(open?.keys() ?? [])];
  const before = answers.findLast((res) => res.req.complete && !res.writableFinished);
  const half = answers.find((res) => !res.req.complete);
  const end = (): void => {
    // One that waited for its turn has begun by now.
    const exchange = half && open?.get(half);
    // A request refused in the middle of its body has its answer already.
    if (!socket.writable || half?.headersSent) socket.destroy();
    else if (exchange) void endExchange(socket, exchange, refused, options);
    else endUnknown(socket, refused, options);
  };
  if (before) before.once("close", end);
  else end();
}

const MALFORMED = "Invalid request: it is not well-formed HTTP/1.1";

function parseFault(error: NodeJS.ErrnoException): Refusal {
  switch (error.code) {
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return refuse("request_timeout");
    case "HPE_HEADER_OVERFLOW":
      return refuse("headers_too_large");
    case "HPE_PAUSED_H2_UPGRADE":
      return refuse("version_unsupported");
    case "HPE_INVALID_VERSION":
      // The parser says so also of a line that does not end in CRLF.
      if (!/CRLF/.test(error.message)) return refuse("version_unsupported");
      return refuse("invalid_request", { text: MALFORMED });
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return refuse("payload_too_large");
    default:
      return refuse("invalid_request", { text: MALFORMED });
  }
}

/** Answers a request whose head is served already: under its id, with its key's numbers. */
async function endExchange(
  socket: Duplex,
  exchange: Exchange,
  refused: Refusal,
  options: ListenerOptions,
): Promise<void> {
  const answer = await options.refuseBroken(exchange, refused);
  endRaw(socket, answer, headersOf(exchange, answer, true));
}

/** Answers what never became a request. */
function endUnknown(socket: Duplex, refused: Refusal, options: ListenerOptions): void {
  const requestId = newRequestId();
  const answer = refusal(refused, requestId);
  const lines = commonHeaders(noLimits(Date.now()), requestId, Buffer.byteLength(answer.body));
  lines.push("Connection", "close", ...(answer.headers ?? []));
  endRaw(socket, answer, lines);
  options.parseRefused(refused, requestId);
}

/** Answers on the bare socket, and closes it once the client has read: Node's response would close it at once. */
function endRaw(socket: Duplex, { status, body }: Answer, lines: readonly string[]): void {
  socket.on("error", () => socket.destroy());
  let head = `HTTP/1.1 ${status} ${REASONS[status] ?? "Error"}\r\nDate: ${new Date().toUTCString()}\r\n`;
  for (let at = 0; at < lines.length; at += 2) head += `${lines[at]}: ${lines[at + 1]}\r\n`;
  socket.end(`${head}\r\n${body}`);
  // What the client still sends is read and forgotten for a moment, or a reset would overtake the answer.
  socket.resume();
  setTimeout(() => socket.destroy(), 1000).unref();
}

const REASONS: Record<number, string> = {
  400: "Bad Request",
  401: "Unauthorized",
  408: "Request Timeout",
  413: "Content Too Large",
  431: "Request Header Fields Too Large",
  505: "HTTP Version Not Supported",
};
