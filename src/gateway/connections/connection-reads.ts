import type { IncomingMessage } from "node:http";
import type { ClientConnection } from "./client-connection.ts";

/** For a throttled address. Nothing is read from them yet, so that those that have closed are not noticed; fewer would displace each other. */
export const UNREAD_MAX = 512;

interface ConnectionReadsOptions {
  connections(): Iterable<ClientConnection>;
  /** A throttled address has opened too many connections; this is the oldest. */
  exceeded(connection: ClientConnection): void;
}

/** Decides when connections are read: not while their address, or the account whose upload they send, is throttled, or a chunked body has no reader. Decision 0035. */
export class ConnectionReads {
  readonly #throttle: AddressThrottle;
  readonly #exceeded: ConnectionReadsOptions["exceeded"];
  /** Connections that were opened while their address was throttled, before their first request; oldest first. */
  readonly #openedThrottled = new Map<string, Set<ClientConnection>>();

  constructor({ connections, exceeded }: ConnectionReadsOptions) {
    this.#exceeded = exceeded;
    this.#throttle = createAddressThrottle({
      paused(payer) {
        for (const each of connections()) if (each.payer === payer) each.pauseReading();
      },
      resumed(payer) {
        const own = [...connections()].filter((each) => each.payer === payer);
        for (const each of own) if (each.isUsed) each.resumeReading();
        // They are read in this order. Whoever floods the address with heads has the older ones.
        for (const each of own.reverse()) each.resumeReading();
      },
    });
  }

  get pauses(): number {
    return this.#throttle.pauses();
  }

  opened(connection: ClientConnection): void {
    const { address } = connection;
    if (!this.#throttle.isPaused(address)) return;
    connection.pauseReading();
    const own = this.#openedThrottled.get(address) ?? new Set();
    this.#openedThrottled.set(address, own.add(connection));
    const [oldest] = own;
    if (oldest && own.size > UNREAD_MAX) this.#exceeded(oldest);
  }

  usedOrClosed(connection: ClientConnection): void {
    const own = this.#openedThrottled.get(connection.address);
    if (own?.delete(connection) && own.size === 0) this.#openedThrottled.delete(connection.address);
  }

  pipelined({ payer }: ClientConnection): void {
    this.#throttle.pipelined(payer);
  }

  bodyRead({ payer }: ClientConnection, bytes: number): void {
    this.#throttle.bodyRead(payer, bytes);
  }

  /** The account is throttled for this body, not others behind the address; from a trusted proxy until the request ends. */
  uploadStarted(connection: ClientConnection, upload: IncomingMessage, accountId: string): void {
    connection.upload = upload;
    // No address contains a space.
    this.#setPayer(connection, `account ${accountId}`);
  }

  uploadEnded(connection: ClientConnection): void {
    connection.upload = undefined;
    if (connection.trusted) this.#setPayer(connection, connection.address);
  }

  #setPayer(connection: ClientConnection, payer: string): void {
    connection.payer = payer;
    if (this.#throttle.isPaused(payer)) connection.pauseReading();
    else connection.resumeReading();
  }

  /** Node makes an object for each chunk, however small, so nothing is read beyond the head until a handler reads the body. */
  pauseUntilBodyRead(connection: ClientConnection, req: IncomingMessage): void {
    const { bytesRead } = req.socket;
    // A proxy may send all its clients' bodies chunked; its chunks are not small.
    if (!connection.trusted) this.#throttle.chunked(connection.payer, bytesRead - connection.bytesBefore);
    connection.bytesBefore = bytesRead;
    connection.unreadBody = req;
    connection.pauseReading();
    req.once("resume", () => this.bodyTaken(connection, req));
  }

  /** A handler reads the body, or the response has ended. */
  bodyTaken(connection: ClientConnection, req: IncomingMessage): void {
    if (connection.unreadBody !== req) return;
    connection.unreadBody = undefined;
    this.resume(connection);
  }

  resume(connection: ClientConnection): void {
    if (!this.#throttle.isPaused(connection.payer)) connection.resumeReading();
  }
}

/** One tick's work of one address before it is throttled. A pipelined request costs 1; 1 MiB of bodies, or 3,200 chunks, costs 64. */
const COST_PER_TICK_MAX = 64;
const COST_PER_CHUNK = 1 / 50;
const COST_PER_BYTE = 1 / 16_384;
/** Bytes that came with the head of a chunked body are being parsed already, maybe as chunks of one byte (`1 CRLF a CRLF`). */
const COST_PER_CHUNKED_BYTE = COST_PER_CHUNK / 6;
/** How long nothing is read from a throttled address. On a busy machine `PAUSE_TICKS` times as long as a tick, up to the maximum. */
const PAUSE_MS_MIN = 50;
const PAUSE_MS_MAX = 1000;
const PAUSE_TICKS = 4;

type AddressThrottle = ReturnType<typeof createAddressThrottle>;

/**
 * Pauses addresses that send much on many connections: one tick reads 64 KiB and more from each, and parsing costs time even where the request
 * is refused. Requests that are not pipelined cost nothing, except chunked bodies; uploads count for their account. When a pause ends, what
 * was sent meanwhile is read at once, so one address resumes per tick, and the next after another pause. Decision 0035.
 */
export function createAddressThrottle(on: {
  /** From now on nothing is to be read from this address. */
  paused(address: string): void;
  resumed(address: string): void;
}) {
  const paused = new Set<string>();
  /** Paused addresses whose time is over and that wait for their tick. */
  const due = new Set<string>();
  const spent = new Map<string, number>();
  let pauses = 0;
  let tickFromMs = 0;
  /** As `performance.now()`: no address resumes before. */
  let nextResumeMs = 0;

  /** Runs at the end of the tick: only then its duration is known. */
  function endTick(): void {
    const nowMs = performance.now();
    const pauseMs = Math.min(PAUSE_MS_MAX, PAUSE_TICKS * (nowMs - tickFromMs));
    for (const [address, cost] of spent) {
      if (cost <= COST_PER_TICK_MAX) continue;
      nextResumeMs = nowMs + pauseMs;
      setTimeout(endPause, Math.max(PAUSE_MS_MIN, pauseMs), address).unref();
    }
    spent.clear();
  }

  function endPause(address: string): void {
    due.add(address);
    if (due.size === 1) setImmediate(resumeNext);
  }

  function resumeNext(): void {
    const [address] = due;
    if (address === undefined) return;
    const leftMs = nextResumeMs - performance.now();
    if (leftMs > 0) {
      setTimeout(resumeNext, leftMs).unref();
      return;
    }
    due.delete(address);
    // Two ticks later, so that the duration of this address's tick is known.
    if (due.size > 0) setImmediate(() => setImmediate(resumeNext));
    paused.delete(address);
    on.resumed(address);
  }

  function spend(address: string, cost: number): void {
    if (paused.has(address)) return;
    if (spent.size === 0) {
      tickFromMs = performance.now();
      setImmediate(endTick);
    }
    const sum = (spent.get(address) ?? 0) + cost;
    spent.set(address, sum);
    if (sum <= COST_PER_TICK_MAX) return;
    paused.add(address);
    pauses++;
    on.paused(address);
  }

  return {
    isPaused: (address: string): boolean => paused.has(address),
    pauses: (): number => pauses,
    pipelined: (address: string): void => spend(address, 1),
    /** The head of a chunked body has come, and so many bytes with it. */
    chunked: (address: string, bytes: number): void => spend(address, bytes * COST_PER_CHUNKED_BYTE),
    bodyRead: (address: string, bytes: number): void =>
      spend(address, COST_PER_CHUNK + bytes * COST_PER_BYTE),
  };
}
