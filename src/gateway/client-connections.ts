import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { createReadRests, type ReadRests } from "./address-throttle.ts";
import {
  type ConnectionBound,
  type ConnectionLimits,
  createConnectionLimits,
  type LimitedConnection,
} from "./connection-limits.ts";
import type { Exchange } from "./exchange.ts";
import { holdReading } from "./pause-reading.ts";

/** Requests of one connection that are worked on at a time. Those behind them wait, and nothing more is read. */
export const STARTED_MAX = 8;
/**
 * Requests that may wait on one connection: Node hands over all that one read brings, which are up to 64 KiB. Clients
 * that really pipeline send a few.
 */
export const WAITING_MAX = 100;
/** Connections above a limit that are kept for a moment to be answered 503; further ones are closed at once. */
export const REFUSED_MAX = 64;
const REFUSED_MS = 1000;
/**
 * Connections that one address may open while it rests: nothing is read from them yet, so that nobody sees which of them their
 * clients have left already.
 */
export const UNREAD_MAX = 64;
/** How long a client has to take its answer from a connection that is not read any more, once it was written. */
const TAKE_ANSWER_MS = 1000;

/** Of one process; they may change while it runs. */
export interface ClientLimits {
  /** Connections at a time. */
  maxConnections: number;
  maxConnectionsPerAddress: number;
  /** As many requests may also wait for their turn, on all connections together. */
  maxRequestsInFlight: number;
  /** Bytes of answers that clients have not taken yet, on all connections together. */
  maxUnreadBytes: number;
}

/** Why a connection was refused or ended. */
export type EndedBy = ConnectionBound | "pipelined_requests" | "unread_answers" | "write_timeout";

/** One request whose head was read. */
export interface Arrival {
  req: IncomingMessage;
  res: ServerResponse;
  expectsContinue: boolean;
}

export interface ClientConnection extends LimitedConnection {
  /** With TLS, once the handshake is done, the one that decrypts. */
  socket: Socket;
  /** Answers that are unfinished, or whose requests are; oldest first. Undefined: it waits, or is dropped. */
  readonly answers: Map<ServerResponse, Exchange | undefined>;
  /** Requests that have not begun; while there are any, nothing is read. */
  readonly waiting: Arrival[];
  /** Nothing is read from it now; this ends it. */
  releaseReading: (() => void) | undefined;
  /** Of what has been read, so much came before the requests that are on it now. */
  bytesBefore: number;
  /** Its body came in chunks, and nobody has begun to read it: until then nothing is read. */
  unreadBody: IncomingMessage | undefined;
  /** Nothing is read from it any more; it ends behind its answers. */
  ending: boolean;
  /** Of answers that were written and that the client has not taken. */
  unreadBytes: number;
  /** It came above a limit: its first request is refused. */
  refused: boolean;
  /** A request has come on it. */
  used: boolean;
}

export interface ClientConnectionsOptions {
  limits(): ClientLimits;
  /** Who is on the other side. */
  peer(socket: Socket): { address: string; trusted: boolean };
  /** A connection was refused or ended because a limit was reached. */
  ended(by: EndedBy): void;
}

/** Whom the connections hand their requests to. */
export interface ConnectionHandlers {
  /** Begins the work on a request. @returns undefined for one that is dropped */
  start(arrival: Arrival, refused: boolean): Exchange | undefined;
  /** All answers of a connection have been taken. */
  settled(connection: ClientConnection): void;
}

/**
 * The connections of the public port, and what each may take: how many there are, how many requests of one are worked
 * on, wait, and have answers that the client does not read. Decision 0035.
 */
export class ClientConnections {
  readonly #options: ClientConnectionsOptions;
  #handlers: ConnectionHandlers | undefined;
  readonly #connections = new Map<Duplex, ClientConnection>();
  readonly #entered: ConnectionLimits<ClientConnection>;
  readonly #rests: ReadRests;
  /** Of addresses that rested as these were opened: nothing has come of them yet; oldest first. */
  readonly #unread = new Map<string, Set<ClientConnection>>();
  #refused = 0;
  #waiting = 0;
  #unreadBytes = 0;
  #activity = 0;
  #looking = false;

  constructor(options: ClientConnectionsOptions) {
    this.#options = options;
    this.#entered = createConnectionLimits(() => {
      const { maxConnections, maxConnectionsPerAddress } = options.limits();
      return { total: maxConnections, perAddress: maxConnectionsPerAddress };
    });
    const connections = this.#connections;
    const eachOf = (address: string, change: (connection: ClientConnection) => void): void => {
      for (const connection of connections.values()) if (connection.address === address) change(connection);
    };
    this.#rests = createReadRests({
      began: (address) => eachOf(address, hold),
      ended: (address) => eachOf(address, (connection) => this.#release(connection)),
    });
  }

  /** Must be called before the first connection is opened. */
  attach(handlers: ConnectionHandlers): void {
    this.#handlers = handlers;
  }

  open(socket: Socket): void {
    const answers: ClientConnection["answers"] = new Map();
    const connection: ClientConnection = {
      ...this.#options.peer(socket),
      socket,
      answers,
      waiting: [],
      releaseReading: undefined,
      bytesBefore: 0,
      unreadBody: undefined,
      ending: false,
      unreadBytes: 0,
      lastActive: ++this.#activity,
      refused: false,
      used: false,
      isIdle: () => answers.size === 0,
      isSending: () => [...answers.keys()].every(({ req }) => !req.complete),
    };
    const entry = this.#entered.enter(connection);
    if (entry.outcome === "refused") {
      this.#refuse(connection, entry.bound);
      return;
    }
    this.#connections.set(socket, connection);
    socket.once("close", () => this.#forget(connection));
    if (this.#rests.has(connection.address)) this.#holdUnread(connection);
    if (entry.outcome === "admitted_instead") {
      this.#options.ended(entry.bound);
      this.#drop(entry.of);
    }
  }

  /** The TLS handshake of a connection is done: its requests name another socket. */
  secured(accepted: Socket, socket: Socket): void {
    const connection = this.#connections.get(accepted);
    if (!connection) {
      socket.destroy();
      return;
    }
    this.#connections.delete(accepted);
    connection.socket = socket;
    this.#connections.set(socket, connection);
    if (connection.releaseReading) connection.releaseReading = holdReading(socket);
  }

  /** A request has come: begins it, or lets it wait. */
  arrive(arrival: Arrival): void {
    const connection = this.#connections.get(arrival.req.socket);
    // It was ended while what it had sent was still being taken apart.
    if (!connection) return;
    const { answers } = connection;
    if (answers.size > 0) this.#rests.pipelined(connection.address);
    answers.set(arrival.res, undefined);
    arrival.res.on("close", () => this.#closed(arrival.res));
    if (answers.size - connection.waiting.length <= STARTED_MAX) this.#start(connection, arrival);
    else this.#wait(connection, arrival);
  }

  /** An answer was written: its bytes count until the client has taken them. */
  answered(exchange: Exchange, bytes: number): void {
    const connection = this.#connections.get(exchange.req.socket);
    if (!connection?.answers.has(exchange.res)) return;
    exchange.answerBytes = bytes;
    connection.unreadBytes += bytes;
    this.#unreadBytes += bytes;
    if (this.#looking || this.#unreadBytes <= this.#options.limits().maxUnreadBytes) return;
    // Most answers are with the kernel by then.
    this.#looking = true;
    setImmediate(() => this.#endMostUnread());
  }

  /**
   * A request with a chunked body has come. Node takes apart whatever comes of it, each chunk of one byte into an object of
   * its own; so no more is read than came with its head, until somebody reads the body.
   */
  holdUntilRead(req: IncomingMessage): void {
    const connection = this.#connections.get(req.socket);
    if (!connection) return;
    const { bytesRead } = req.socket;
    // A proxy may make chunks of all its clients' bodies, and sends no small ones.
    if (!connection.trusted) this.#rests.chunked(connection.address, bytesRead - connection.bytesBefore);
    connection.bytesBefore = bytesRead;
    connection.unreadBody = req;
    hold(connection);
    req.once("resume", () => this.#bodyTaken(req));
  }

  /**
   * The body of the request of this answer is not worth reading any further: reads no more, and ends the connection once
   * the client had time to take the answer. Closed at once, it would be reset, and the client might never see it.
   */
  stopReading(res: ServerResponse): void {
    const connection = this.#connections.get(res.req.socket);
    if (!connection || connection.ending) return;
    const { socket } = connection;
    connection.ending = true;
    hold(connection);
    const end = (): void => {
      socket.end();
      setTimeout(() => socket.destroy(), TAKE_ANSWER_MS).unref();
    };
    if (res.writableFinished) end();
    else res.once("close", end);
  }

  /** A piece of a body came to its reader. Uploads name 0 bytes: only their pieces count. */
  bodyRead(socket: Duplex, bytes: number): void {
    const connection = this.#connections.get(socket);
    if (connection) this.#rests.bodyRead(connection.address, bytes);
  }

  /** Nothing was read or written for `write_timeout`; behind the last answer, for `keep_alive_timeout`. */
  timedOut(socket: Socket): void {
    const connection = this.#connections.get(socket);
    if (connection && socket.writableLength > 0) this.#end(connection, "write_timeout");
    // Before its first request, the timeout of heads counts.
    else if (!connection || (connection.used && connection.answers.size === 0)) socket.destroy();
  }

  at(socket: Duplex): ClientConnection | undefined {
    return this.#connections.get(socket);
  }

  all(): Iterable<ClientConnection> {
    return this.#connections.values();
  }

  /** Whether the connection of this answer has a later request whose answer is still to come. */
  hasPipelinedResponse(res: ServerResponse): boolean {
    const answers = this.#connections.get(res.req.socket)?.answers.keys() ?? [];
    return [...answers].at(-1) !== res;
  }

  /** Answers that are written and whose clients have not taken them yet. */
  unflushedAnswers(): number {
    let count = 0;
    for (const { answers } of this.#connections.values())
      for (const res of answers.keys()) if (res.writableEnded && !res.writableFinished) count++;
    return count;
  }

  /** What is open, waits and is unread now, and how often addresses rested. */
  counts() {
    return {
      open: this.#entered.count() + this.#refused,
      waiting: this.#waiting,
      unreadBytes: this.#unreadBytes,
      rests: this.#rests.count(),
    };
  }

  /** Keeps it until its first request is answered 503, for a moment and for a few only. */
  #refuse(connection: ClientConnection, bound: ConnectionBound): void {
    const { socket } = connection;
    this.#options.ended(bound);
    if (this.#refused >= REFUSED_MAX) {
      socket.destroy();
      return;
    }
    this.#refused++;
    connection.refused = true;
    this.#connections.set(socket, connection);
    const timer = setTimeout(() => connection.socket.destroy(), REFUSED_MS).unref();
    socket.once("close", () => {
      clearTimeout(timer);
      this.#refused--;
      this.#drop(connection);
    });
  }

  /** Of an address that rests; the one that has waited for the longest time is ended for one too many. */
  #holdUnread(connection: ClientConnection): void {
    hold(connection);
    const own = this.#unread.get(connection.address) ?? new Set();
    this.#unread.set(connection.address, own.add(connection));
    const [oldest] = own;
    if (oldest && own.size > UNREAD_MAX) this.#end(oldest, "connections_per_address");
  }

  /** Something has come of it, or it is over. */
  #leaveUnread(connection: ClientConnection): void {
    const own = this.#unread.get(connection.address);
    if (own?.delete(connection) && own.size === 0) this.#unread.delete(connection.address);
  }

  /** The connection is over: nothing of it counts any more. */
  #forget(connection: ClientConnection): void {
    if (this.#connections.get(connection.socket) !== connection) return;
    this.#entered.leave(connection);
    this.#drop(connection);
  }

  #drop(connection: ClientConnection): void {
    this.#connections.delete(connection.socket);
    this.#leaveUnread(connection);
    this.#waiting -= connection.waiting.length;
    connection.waiting.length = 0;
    this.#unreadBytes -= connection.unreadBytes;
    connection.unreadBytes = 0;
    connection.socket.destroy();
  }

  #end(connection: ClientConnection, by: EndedBy): void {
    this.#options.ended(by);
    if (connection.refused) this.#drop(connection);
    else this.#forget(connection);
  }

  #start(connection: ClientConnection, arrival: Arrival): void {
    connection.lastActive = ++this.#activity;
    if (!connection.used) this.#leaveUnread(connection);
    connection.used = true;
    connection.answers.set(arrival.res, this.#handlers?.start(arrival, connection.refused));
  }

  #wait(connection: ClientConnection, arrival: Arrival): void {
    const { maxRequestsInFlight } = this.#options.limits();
    if (connection.waiting.length >= WAITING_MAX || this.#waiting >= maxRequestsInFlight) {
      abortCheaply(connection.socket);
      this.#end(connection, "pipelined_requests");
      return;
    }
    this.#waiting++;
    connection.waiting.push(arrival);
    hold(connection);
  }

  /** Begins what waits, as far as there is room; reads on once nothing waits. */
  #startNext(connection: ClientConnection): void {
    const { answers, waiting } = connection;
    if (waiting.length === 0) return;
    while (waiting.length > 0 && answers.size - waiting.length < STARTED_MAX) {
      this.#waiting--;
      this.#start(connection, waiting.shift()!);
    }
    this.#release(connection);
  }

  /** Reads on, unless there is another reason not to. */
  #release(connection: ClientConnection): void {
    const { address, ending, unreadBody, waiting } = connection;
    if (ending || unreadBody || waiting.length > 0 || this.#rests.has(address)) return;
    connection.releaseReading?.();
    connection.releaseReading = undefined;
  }

  #bodyTaken(req: IncomingMessage): void {
    const connection = this.#connections.get(req.socket);
    if (connection?.unreadBody !== req) return;
    connection.unreadBody = undefined;
    this.#release(connection);
  }

  /** The client has taken an answer, or is gone. */
  #closed(res: ServerResponse): void {
    const { req } = res;
    const connection = this.#connections.get(req.socket);
    if (!connection) return;
    if (connection.unreadBody) this.#bodyTaken(req);
    const bytes = connection.answers.get(res)?.answerBytes ?? 0;
    connection.unreadBytes -= bytes;
    this.#unreadBytes -= bytes;
    if (req.complete) this.#settle(connection, res);
    else req.once("close", () => this.#settle(connection, res));
  }

  /** An answer and its request are over. */
  #settle(connection: ClientConnection, res: ServerResponse): void {
    connection.answers.delete(res);
    connection.lastActive = ++this.#activity;
    if (this.#connections.has(connection.socket)) this.#startNext(connection);
    if (connection.answers.size > 0) return;
    connection.bytesBefore = connection.socket.bytesRead;
    this.#handlers?.settled(connection);
  }

  /** Above the limit, those that hold the most unread bytes are ended, one after the other. */
  #endMostUnread(): void {
    this.#looking = false;
    const { maxUnreadBytes } = this.#options.limits();
    while (this.#unreadBytes > maxUnreadBytes) {
      let most: ClientConnection | undefined;
      for (const each of this.#connections.values())
        if (each.unreadBytes > (most?.unreadBytes ?? 0)) most = each;
      if (!most) return;
      this.#end(most, "unread_answers");
    }
  }
}

/** Reads no further, until `#release` finds no reason left. */
function hold(connection: ClientConnection): void {
  connection.releaseReading ??= holdReading(connection.socket);
}

/**
 * When a connection closes, Node makes an error for each request on it that is not answered: of one read there may be 2,500.
 * Without their stacks, which nobody reads, that takes a third of the time.
 */
function abortCheaply(socket: Socket): void {
  let stackTraceLimit = 0;
  socket.prependOnceListener("close", () => {
    ({ stackTraceLimit } = Error);
    Error.stackTraceLimit = 0;
  });
  socket.once("close", () => {
    Error.stackTraceLimit = stackTraceLimit;
  });
}
