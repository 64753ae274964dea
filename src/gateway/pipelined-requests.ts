import type { Socket } from "node:net";
import type { ClientConnection, ReceivedRequest } from "./client-connection.ts";

/** Requests of one connection that are processed at a time. The requests behind them wait, and nothing more is read. */
const STARTED_MAX = 8;
/**
 * Requests that may wait on one connection. Node emits every request of one read, which is up to 64 KiB. Clients that
 * really pipeline send a few.
 */
export const WAITING_MAX = 100;

interface PipelinedRequestsOptions {
  /** Requests that may wait on all connections together. */
  waitingMax(): number;
  start(connection: ClientConnection, request: ReceivedRequest): void;
  /** A connection has sent more requests ahead than may wait. */
  exceeded(connection: ClientConnection): void;
}

/** Starts the requests of each connection in order, a few at a time. Decision 0035. */
export class PipelinedRequests {
  readonly #options: PipelinedRequestsOptions;
  #waiting = 0;

  constructor(options: PipelinedRequestsOptions) {
    this.#options = options;
  }

  /** Requests that wait, on all connections together. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Starts a request whose response is pending already, or queues it. */
  add(connection: ClientConnection, request: ReceivedRequest): void {
    const { pendingResponses, waitingRequests } = connection;
    if (pendingResponses.size - waitingRequests.length <= STARTED_MAX) {
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

  /** A response of the connection has ended: starts waiting requests as far as there is room. */
  startNext(connection: ClientConnection): void {
    const { pendingResponses, waitingRequests } = connection;
    while (waitingRequests.length > 0 && pendingResponses.size - waitingRequests.length < STARTED_MAX) {
      this.#waiting--;
      this.#options.start(connection, waitingRequests.shift()!);
    }
  }

  /** The connection is closed: its waiting requests are dropped. */
  drop({ waitingRequests }: ClientConnection): void {
    this.#waiting -= waitingRequests.length;
    waitingRequests.length = 0;
  }
}

/**
 * When a connection closes, Node creates an error for each unanswered request on it, up to 2,500 from one read. Without stack
 * traces, which nobody reads, that takes a third of the time.
 */
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
