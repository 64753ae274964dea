import type { IncomingMessage } from "node:http";
import { type AddressThrottle, createAddressThrottle } from "./address-throttle.ts";
import type { ClientConnection } from "./client-connection.ts";

/**
 * Connections that one address may open while it is throttled. Nothing is read from them yet, so the gateway does not notice
 * which of them their clients have closed. With fewer, clients that open them again and again displace each other and everybody else.
 */
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

  /** How often addresses were throttled. */
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

  /** The connection has sent its first request, or is closed. */
  usedOrClosed(connection: ClientConnection): void {
    const own = this.#openedThrottled.get(connection.address);
    if (own?.delete(connection) && own.size === 0) this.#openedThrottled.delete(connection.address);
  }

  /** A request has come before the response to the one before it. */
  pipelined({ payer }: ClientConnection): void {
    this.#throttle.pipelined(payer);
  }

  /** A chunk of a body was read. */
  bodyRead({ payer }: ClientConnection, bytes: number): void {
    this.#throttle.bodyRead(payer, bytes);
  }

  /**
   * The account is throttled for this body, and not others behind the same address; from a trusted proxy until the request ends, else
   * for all that follows on this connection.
   */
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

  /**
   * A request with a chunked body has started. Node creates an object for each chunk that it reads, however small. So nothing
   * more is read than came with the head until a handler reads the body.
   */
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

  /** Reads on, unless there is another reason not to. */
  resume(connection: ClientConnection): void {
    if (!this.#throttle.isPaused(connection.payer)) connection.resumeReading();
  }
}
