import type { IncomingMessage, ServerResponse } from "node:http";
import type { Server, Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Exchange } from "../http-exchange.ts";
import { ClientConnection, type ReceivedRequest } from "./client-connection.ts";
import { type ConnectionBound, type ConnectionLimits, createConnectionLimits } from "./connection-limits.ts";
import { ConnectionReads } from "./connection-reads.ts";

/** Connections above a limit that stay open for a moment to be answered 503; further ones are closed at once. */
export const REFUSED_MAX = 64;
const REFUSED_MS = 1000;
/** How long a client may take to read its response from a connection that is not read any more. */
const READ_RESPONSE_MS = 1000;

export interface ClientLimits {
  maxConnections: number;
  maxConnectionsPerAddress: number;
  /** Also the number of requests that may wait, on all connections together. */
  maxRequestsInFlight: number;
  /** Bytes of responses that clients have not read, on all connections together. */
  maxUnreadBytes: number;
}

type EndedBy = ConnectionBound | "pipelined_requests" | "unread_answers" | "write_timeout";

interface ClientConnectionsOptions {
  live: { readonly snapshot: { readonly config: { readonly server: ClientLimits } } };
  peer(socket: Socket): { address: string; trusted: boolean };
  ended(by: EndedBy): void;
}

/** Starts a request. @returns undefined for a request that is dropped */
type StartRequest = (request: ReceivedRequest, isRefused: boolean) => Exchange | undefined;

/** The connections of the public port, from their acceptance to their end, and what each may use. Decision 0035. */
export class ClientConnections {
  readonly #options: ClientConnectionsOptions;
  #server: Pick<Server, "listening"> | undefined;
  #startRequest: StartRequest | undefined;
  readonly #connections = new Map<Duplex, ClientConnection>();
  readonly #admitted: ConnectionLimits<ClientConnection>;
  readonly #reads: ConnectionReads;
  readonly #pipelined: PipelinedRequests;
  readonly #unread: UnreadResponses;
  #refused = 0;
  #activity = 0;

  constructor(options: ClientConnectionsOptions) {
    const limits = (): ClientLimits => options.live.snapshot.config.server;
    this.#options = options;
    this.#admitted = createConnectionLimits(() => {
      const { maxConnections, maxConnectionsPerAddress } = limits();
      return { total: maxConnections, perAddress: maxConnectionsPerAddress };
    });
    this.#reads = new ConnectionReads({
      connections: () => this.#connections.values(),
      exceeded: (connection) => this.#end(connection, "connections_per_address"),
    });
    this.#pipelined = new PipelinedRequests({
      waitingMax: () => limits().maxRequestsInFlight,
      start: (connection, request) => this.#start(connection, request),
      exceeded: (connection) => this.#end(connection, "pipelined_requests"),
    });
    this.#unread = new UnreadResponses({
      connections: () => this.#connections.values(),
      bytesMax: () => limits().maxUnreadBytes,
      exceeded: (connection) => this.#end(connection, "unread_answers"),
    });
  }

  /** Must be called before the first connection is opened. */
  attach(server: Pick<Server, "listening">, start: StartRequest): void {
    this.#server = server;
    this.#startRequest = start;
  }

  open(socket: Socket): void {
    const connection = new ClientConnection(socket, this.#options.peer(socket), ++this.#activity);
    const entry = this.#admitted.enter(connection);
    if (entry.outcome === "refused") {
      this.#refuse(connection, entry.bound);
      return;
    }
    this.#connections.set(socket, connection);
    socket.once("close", () => this.#forget(connection));
    this.#reads.opened(connection);
    if (entry.outcome === "admitted_instead") {
      this.#options.ended(entry.bound);
      this.#drop(entry.of);
    }
  }

  secured(accepted: Socket, socket: Socket): void {
    const connection = this.#connections.get(accepted);
    if (!connection) {
      socket.destroy();
      return;
    }
    this.#connections.delete(accepted);
    this.#connections.set(socket, connection);
    connection.secured(socket);
  }

  /** A request was received: starts it, or queues it behind the requests before it. */
  readonly receive = (req: IncomingMessage, res: ServerResponse, expectsContinue = false): void => {
    const connection = this.#connections.get(req.socket);
    // The connection was ended while Node parsed what it had sent.
    if (!connection) return;
    const { pendingRequests } = connection;
    if (pendingRequests.length > 0) this.#reads.pipelined(connection);
    const request = { req, res, expectsContinue, exchange: undefined };
    pendingRequests.push(request);
    res.on("close", () => this.#onResponseClosed(connection, request));
    this.#pipelined.add(connection, request);
  };

  /** A request with a chunked body has started: reads no more than came with its head until a handler reads the body. */
  pauseUntilBodyRead(req: IncomingMessage): void {
    const connection = this.#connections.get(req.socket);
    if (connection) this.#reads.pauseUntilBodyRead(connection, req);
  }

  /** Uploads pass 0 bytes: only the number of their chunks counts. */
  bodyRead(socket: Duplex, bytes: number): void {
    const connection = this.#connections.get(socket);
    if (connection) this.#reads.bodyRead(connection, bytes);
  }

  uploadStarted(req: IncomingMessage, accountId: string): void {
    const connection = this.#connections.get(req.socket);
    if (connection) this.#reads.uploadStarted(connection, req, accountId);
  }

  responseWritten(exchange: Exchange, bytes: number): void {
    const connection = this.#connections.get(exchange.req.socket);
    if (connection?.pendingRequests.some(({ res }) => res === exchange.res))
      this.#unread.written(connection, exchange, bytes);
  }

  /** Ends the connection once the client had time to read the response: an immediate close would reset it. */
  endAfterResponse(res: ServerResponse): void {
    const connection = this.#connections.get(res.req.socket);
    if (!connection || connection.isEnding) return;
    const { socket } = connection;
    connection.isEnding = true;
    connection.pauseReading();
    const end = (): void => {
      socket.end();
      setTimeout(() => socket.destroy(), READ_RESPONSE_MS).unref();
    };
    if (res.writableFinished) end();
    else res.once("close", end);
  }

  /** Nothing was read or written for `write_timeout`, or for `keep_alive_timeout` after the last response. */
  timedOut(socket: Socket): void {
    const connection = this.#connections.get(socket);
    if (connection && socket.writableLength > 0) this.#end(connection, "write_timeout");
    // Before the first request, the headers timeout applies.
    else if (!connection || (connection.isUsed && connection.isIdle())) socket.destroy();
  }

  get(socket: Duplex): ClientConnection | undefined {
    return this.#connections.get(socket);
  }

  all(): Iterable<ClientConnection> {
    return this.#connections.values();
  }

  hasPipelinedResponse(res: ServerResponse): boolean {
    return this.#connections.get(res.req.socket)?.pendingRequests.at(-1)?.res !== res;
  }

  unflushedResponses(): number {
    let count = 0;
    for (const { pendingRequests } of this.#connections.values())
      for (const { res } of pendingRequests) if (res.writableEnded && !res.writableFinished) count++;
    return count;
  }

  counts() {
    return {
      open: this.#admitted.count() + this.#refused,
      waiting: this.#pipelined.waiting,
      unreadBytes: this.#unread.bytes,
      rests: this.#reads.pauses,
    };
  }

  /** Keeps a connection above a limit for a moment, so that its first request can be answered 503. */
  #refuse(connection: ClientConnection, bound: ConnectionBound): void {
    const { socket } = connection;
    this.#options.ended(bound);
    if (this.#refused >= REFUSED_MAX) {
      socket.destroy();
      return;
    }
    this.#refused++;
    connection.isRefused = true;
    this.#connections.set(socket, connection);
    const timer = setTimeout(() => connection.socket.destroy(), REFUSED_MS).unref();
    socket.once("close", () => {
      clearTimeout(timer);
      this.#refused--;
      this.#drop(connection);
    });
  }

  #start(connection: ClientConnection, request: ReceivedRequest): void {
    connection.lastActive = ++this.#activity;
    if (!connection.isUsed) this.#reads.usedOrClosed(connection);
    connection.isUsed = true;
    request.exchange = this.#startRequest?.(request, connection.isRefused);
  }

  #onResponseClosed(connection: ClientConnection, request: ReceivedRequest): void {
    if (this.#connections.get(connection.socket) !== connection) return;
    const { req, exchange } = request;
    if (connection.unreadBody) this.#reads.bodyTaken(connection, req);
    this.#unread.read(connection, exchange);
    if (req.complete) this.#onRequestEnded(connection, request);
    else req.once("close", () => this.#onRequestEnded(connection, request));
  }

  #onRequestEnded(connection: ClientConnection, request: ReceivedRequest): void {
    const { pendingRequests, socket, waitingRequests } = connection;
    pendingRequests.splice(pendingRequests.indexOf(request), 1);
    connection.lastActive = ++this.#activity;
    if (connection.upload === request.req) this.#reads.uploadEnded(connection);
    if (waitingRequests.length > 0 && this.#connections.has(socket)) {
      this.#pipelined.startNext(connection);
      this.#reads.resume(connection);
    }
    if (pendingRequests.length > 0) return;
    connection.bytesBefore = socket.bytesRead;
    // The last response may have been written without `Connection: close`, before the drain began.
    if (!this.#server?.listening) socket.destroySoon();
  }

  #end(connection: ClientConnection, by: EndedBy): void {
    this.#options.ended(by);
    if (connection.isRefused) this.#drop(connection);
    else this.#forget(connection);
  }

  #forget(connection: ClientConnection): void {
    if (this.#connections.get(connection.socket) !== connection) return;
    this.#admitted.leave(connection);
    this.#drop(connection);
  }

  #drop(connection: ClientConnection): void {
    this.#connections.delete(connection.socket);
    this.#reads.usedOrClosed(connection);
    this.#pipelined.drop(connection);
    this.#unread.drop(connection);
    connection.socket.destroy();
  }
}

/** Requests of one connection that are processed at a time. The requests behind them wait, and nothing more is read. */
const STARTED_MAX = 8;
/** Requests that wait on one connection. Node emits every request of one read (64 KiB); clients that really pipeline send a few. */
const WAITING_MAX = 100;

interface PipelinedRequestsOptions {
  waitingMax(): number;
  start(connection: ClientConnection, request: ReceivedRequest): void;
  exceeded(connection: ClientConnection): void;
}

/** Starts the requests of each connection in order, a few at a time. Decision 0035. */
class PipelinedRequests {
  readonly #options: PipelinedRequestsOptions;
  #waiting = 0;

  constructor(options: PipelinedRequestsOptions) {
    this.#options = options;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Starts a request whose response is pending already, or queues it. */
  add(connection: ClientConnection, request: ReceivedRequest): void {
    const { pendingRequests, waitingRequests } = connection;
    if (pendingRequests.length - waitingRequests.length <= STARTED_MAX) {
      this.#options.start(connection, request);
      return;
    }
    if (waitingRequests.length >= WAITING_MAX || this.#waiting >= this.#options.waitingMax()) {
      abortWithoutStacks(connection.socket);
      this.#options.exceeded(connection);
      return;
    }
    this.#waiting++;
    waitingRequests.push(request);
    connection.pauseReading();
  }

  startNext(connection: ClientConnection): void {
    const { pendingRequests, waitingRequests } = connection;
    while (waitingRequests.length > 0 && pendingRequests.length - waitingRequests.length < STARTED_MAX) {
      this.#waiting--;
      this.#options.start(connection, waitingRequests.shift()!);
    }
  }

  drop({ waitingRequests }: ClientConnection): void {
    this.#waiting -= waitingRequests.length;
    waitingRequests.length = 0;
  }
}

/** Node creates an error for each of up to 2,500 unanswered requests of a closed connection; without stack traces a third of the time. */
function abortWithoutStacks(socket: Socket): void {
  let stackTraceLimit = 0;
  socket.prependOnceListener("close", () => {
    ({ stackTraceLimit } = Error);
    Error.stackTraceLimit = 0;
  });
  socket.once("close", () => {
    Error.stackTraceLimit = stackTraceLimit;
  });
}

interface UnreadResponsesOptions {
  connections(): Iterable<ClientConnection>;
  bytesMax(): number;
  exceeded(connection: ClientConnection): void;
}

/** Limits the memory of responses that are written and that clients have not read. Decision 0035. */
class UnreadResponses {
  readonly #options: UnreadResponsesOptions;
  #bytes = 0;
  #isCheckScheduled = false;

  constructor(options: UnreadResponsesOptions) {
    this.#options = options;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** A response was written: its bytes count until the client has read them. */
  written(connection: ClientConnection, exchange: Exchange, bytes: number): void {
    exchange.responseBytes = bytes;
    connection.unreadBytes += bytes;
    this.#bytes += bytes;
    if (this.#isCheckScheduled || this.#bytes <= this.#options.bytesMax()) return;
    // By the next tick the kernel has taken most responses.
    this.#isCheckScheduled = true;
    setImmediate(() => this.#endLargest());
  }

  read(connection: ClientConnection, exchange: Exchange | undefined): void {
    const bytes = exchange?.responseBytes ?? 0;
    connection.unreadBytes -= bytes;
    this.#bytes -= bytes;
  }

  drop(connection: ClientConnection): void {
    this.#bytes -= connection.unreadBytes;
    connection.unreadBytes = 0;
  }

  #endLargest(): void {
    this.#isCheckScheduled = false;
    const bytesMax = this.#options.bytesMax();
    while (this.#bytes > bytesMax) {
      let largest: ClientConnection | undefined;
      for (const each of this.#options.connections()) {
        if (each.unreadBytes > (largest?.unreadBytes ?? 0)) largest = each;
      }
      if (!largest) return;
      this.#options.exceeded(largest);
    }
  }
}
