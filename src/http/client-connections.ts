import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { type ConnectionBound, createConnectionLimits, type LimitedConnection } from "./connection-limits.ts";
import type { Exchange } from "./exchange.ts";
import { holdReading } from "./hold-reading.ts";
import { createReadRests } from "./read-rests.ts";

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
  /** Begins the work on a request. @returns undefined for one that is dropped */
  start(arrival: Arrival, refused: boolean): Exchange | undefined;
  /** A connection was refused or ended because a limit was reached. */
  ended(by: EndedBy): void;
  /** All answers of a connection have been taken. */
  settled(connection: ClientConnection): void;
}

export type ClientConnections = ReturnType<typeof createClientConnections>;

/**
 * The connections of the public port, and what each may take: how many there are, how many requests of one are worked
 * on, wait, and have answers that the client does not read. Decision 0035.
 */
export function createClientConnections(options: ClientConnectionsOptions) {
  const connections = new Map<Duplex, ClientConnection>();
  const entered = createConnectionLimits<ClientConnection>(() => {
    const { maxConnections, maxConnectionsPerAddress } = options.limits();
    return { total: maxConnections, perAddress: maxConnectionsPerAddress };
  });
  let refused = 0;
  let waiting = 0;
  let unreadBytes = 0;
  let activity = 0;
  let looking = false;
  /** Of addresses that rested as these were opened: nothing has come of them yet; oldest first. */
  const unread = new Map<string, Set<ClientConnection>>();
  const rests = createReadRests({
    began: (address) => eachOf(address, hold),
    ended: (address) => eachOf(address, release),
  });

  function open(socket: Socket): void {
    const answers: ClientConnection["answers"] = new Map();
    const connection: ClientConnection = {
      ...options.peer(socket),
      socket,
      answers,
      waiting: [],
      releaseReading: undefined,
      bytesBefore: 0,
      unreadBody: undefined,
      ending: false,
      unreadBytes: 0,
      lastActive: ++activity,
      refused: false,
      used: false,
      isIdle: () => answers.size === 0,
      isSending: () => [...answers.keys()].every(({ req }) => !req.complete),
    };
    const entry = entered.enter(connection);
    if (entry.outcome === "refused") {
      refuse(connection, entry.bound);
      return;
    }
    connections.set(socket, connection);
    socket.once("close", () => forget(connection));
    if (rests.has(connection.address)) holdUnread(connection);
    if (entry.outcome === "admitted_instead") {
      options.ended(entry.bound);
      drop(entry.of);
    }
  }

  /** The TLS handshake of a connection is done: its requests name another socket. */
  function secured(accepted: Socket, socket: Socket): void {
    const connection = connections.get(accepted);
    if (!connection) {
      socket.destroy();
      return;
    }
    connections.delete(accepted);
    connection.socket = socket;
    connections.set(socket, connection);
    if (connection.releaseReading) connection.releaseReading = holdReading(socket);
  }

  /** Keeps it until its first request is answered 503, for a moment and for a few only. */
  function refuse(connection: ClientConnection, bound: ConnectionBound): void {
    const { socket } = connection;
    options.ended(bound);
    if (refused >= REFUSED_MAX) {
      socket.destroy();
      return;
    }
    refused++;
    connection.refused = true;
    connections.set(socket, connection);
    const timer = setTimeout(() => connection.socket.destroy(), REFUSED_MS).unref();
    socket.once("close", () => {
      clearTimeout(timer);
      refused--;
      drop(connection);
    });
  }

  /** Of an address that rests; the one that has waited for the longest time is ended for one too many. */
  function holdUnread(connection: ClientConnection): void {
    hold(connection);
    const own = unread.get(connection.address) ?? new Set();
    unread.set(connection.address, own.add(connection));
    const [oldest] = own;
    if (oldest && own.size > UNREAD_MAX) end(oldest, "connections_per_address");
  }

  /** Something has come of it, or it is over. */
  function leaveUnread(connection: ClientConnection): void {
    const own = unread.get(connection.address);
    if (own?.delete(connection) && own.size === 0) unread.delete(connection.address);
  }

  /** The connection is over: nothing of it counts any more. */
  function forget(connection: ClientConnection): void {
    if (connections.get(connection.socket) !== connection) return;
    entered.leave(connection);
    drop(connection);
  }

  function drop(connection: ClientConnection): void {
    connections.delete(connection.socket);
    leaveUnread(connection);
    waiting -= connection.waiting.length;
    connection.waiting.length = 0;
    unreadBytes -= connection.unreadBytes;
    connection.unreadBytes = 0;
    connection.socket.destroy();
  }

  function end(connection: ClientConnection, by: EndedBy): void {
    options.ended(by);
    if (connection.refused) drop(connection);
    else forget(connection);
  }

  function arrive(arrival: Arrival): void {
    const connection = connections.get(arrival.req.socket);
    // It was ended while what it had sent was still being taken apart.
    if (!connection) return;
    const { answers } = connection;
    if (answers.size > 0) rests.pipelined(connection.address);
    answers.set(arrival.res, undefined);
    arrival.res.on("close", onClosed);
    if (answers.size - connection.waiting.length <= STARTED_MAX) start(connection, arrival);
    else wait(connection, arrival);
  }

  function start(connection: ClientConnection, arrival: Arrival): void {
    connection.lastActive = ++activity;
    if (!connection.used) leaveUnread(connection);
    connection.used = true;
    connection.answers.set(arrival.res, options.start(arrival, connection.refused));
  }

  function wait(connection: ClientConnection, arrival: Arrival): void {
    if (connection.waiting.length >= WAITING_MAX || waiting >= options.limits().maxRequestsInFlight) {
      abortCheaply(connection.socket);
      end(connection, "pipelined_requests");
      return;
    }
    waiting++;
    connection.waiting.push(arrival);
    hold(connection);
  }

  /** Begins what waits, as far as there is room; reads on once nothing waits. */
  function startNext(connection: ClientConnection): void {
    if (connection.waiting.length === 0) return;
    while (
      connection.waiting.length > 0 &&
      connection.answers.size - connection.waiting.length < STARTED_MAX
    ) {
      waiting--;
      start(connection, connection.waiting.shift()!);
    }
    release(connection);
  }

  /** Reads no further, until `release` finds no reason left. */
  function hold(connection: ClientConnection): void {
    connection.releaseReading ??= holdReading(connection.socket);
  }

  function release(connection: ClientConnection): void {
    const { address, ending, unreadBody, waiting } = connection;
    if (ending || unreadBody || waiting.length > 0 || rests.has(address)) return;
    connection.releaseReading?.();
    connection.releaseReading = undefined;
  }

  function eachOf(address: string, change: (connection: ClientConnection) => void): void {
    for (const connection of connections.values()) if (connection.address === address) change(connection);
  }

  function bodyTaken(req: IncomingMessage): void {
    const connection = connections.get(req.socket);
    if (connection?.unreadBody !== req) return;
    connection.unreadBody = undefined;
    release(connection);
  }

  function onClosed(this: ServerResponse): void {
    const connection = connections.get(this.req.socket);
    if (!connection) return;
    if (connection.unreadBody) bodyTaken(this.req);
    const bytes = connection.answers.get(this)?.answerBytes ?? 0;
    connection.unreadBytes -= bytes;
    unreadBytes -= bytes;
    const settle = (): void => {
      connection.answers.delete(this);
      connection.lastActive = ++activity;
      if (connections.has(connection.socket)) startNext(connection);
      if (connection.answers.size > 0) return;
      connection.bytesBefore = connection.socket.bytesRead;
      options.settled(connection);
    };
    if (this.req.complete) settle();
    else this.req.once("close", settle);
  }

  /** Above the limit, those that hold the most unread bytes are ended, one after the other. */
  function endUnread(): void {
    looking = false;
    const { maxUnreadBytes } = options.limits();
    while (unreadBytes > maxUnreadBytes) {
      let most: ClientConnection | undefined;
      for (const each of connections.values()) if (each.unreadBytes > (most?.unreadBytes ?? 0)) most = each;
      if (!most) return;
      end(most, "unread_answers");
    }
  }

  return {
    open,
    secured,
    arrive,
    /** An answer was written: its bytes count until the client has taken them. */
    answered(exchange: Exchange, bytes: number): void {
      const connection = connections.get(exchange.req.socket);
      if (!connection?.answers.has(exchange.res)) return;
      exchange.answerBytes = bytes;
      connection.unreadBytes += bytes;
      unreadBytes += bytes;
      if (looking || unreadBytes <= options.limits().maxUnreadBytes) return;
      // Most answers are with the kernel by then.
      looking = true;
      setImmediate(endUnread);
    },
    /**
     * A request with a chunked body has come. Node takes apart whatever comes of it, each chunk of one byte into an object of
     * its own; so no more is read than came with its head, until somebody reads the body.
     */
    holdUntilRead(req: IncomingMessage): void {
      const connection = connections.get(req.socket);
      if (!connection) return;
      const { bytesRead } = req.socket;
      // A proxy may make chunks of all its clients' bodies, and sends no small ones.
      if (!connection.trusted) rests.chunked(connection.address, bytesRead - connection.bytesBefore);
      connection.bytesBefore = bytesRead;
      connection.unreadBody = req;
      hold(connection);
      req.once("resume", () => bodyTaken(req));
    },
    /**
     * The body of the request of this answer is not worth reading any further: reads no more, and ends the connection once
     * the client had time to take the answer. Closed at once, it would be reset, and the client might never see it.
     */
    endUnread(res: ServerResponse): void {
      const connection = connections.get(res.req.socket);
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
    },
    /** A piece of a body that came to its reader. */
    bodyRead(socket: Duplex, bytes: number): void {
      const connection = connections.get(socket);
      if (connection) rests.bodyRead(connection.address, bytes);
    },
    /** Nothing was read or written for `write_timeout`; behind the last answer, for `keep_alive_timeout`. */
    timedOut(socket: Socket): void {
      const connection = connections.get(socket);
      if (connection && socket.writableLength > 0) end(connection, "write_timeout");
      // Before its first request, the timeout of heads counts.
      else if (!connection || (connection.used && connection.answers.size === 0)) socket.destroy();
    },
    at: (socket: Duplex): ClientConnection | undefined => connections.get(socket),
    all: (): Iterable<ClientConnection> => connections.values(),
    /** Whether the connection of this answer is owed another one behind it. */
    owesMore: (res: ServerResponse): boolean =>
      [...(connections.get(res.req.socket)?.answers.keys() ?? [])].at(-1) !== res,
    counts: () => ({ open: entered.count() + refused, waiting, unreadBytes, rests: rests.count() }),
  };
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
