import type { ServerResponse } from "node:http";
import type { ClientConnection } from "./client-connection.ts";
import type { Exchange } from "./http-exchange.ts";

interface UnreadResponsesOptions {
  connections(): Iterable<ClientConnection>;
  /** Bytes that may be unread on all connections together. */
  bytesMax(): number;
  /** Ends the connection with the most unread bytes. */
  exceeded(connection: ClientConnection): void;
}

/** Limits the memory of responses that are written and that clients have not read. Decision 0035. */
export class UnreadResponses {
  readonly #options: UnreadResponsesOptions;
  #bytes = 0;
  #isCheckScheduled = false;

  constructor(options: UnreadResponsesOptions) {
    this.#options = options;
  }

  /** Unread bytes on all connections together. */
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

  /** The client has read a response, or is gone. */
  read(connection: ClientConnection, res: ServerResponse): void {
    const bytes = connection.pendingResponses.get(res)?.responseBytes ?? 0;
    connection.unreadBytes -= bytes;
    this.#bytes -= bytes;
  }

  /** The connection is closed. */
  drop(connection: ClientConnection): void {
    this.#bytes -= connection.unreadBytes;
    connection.unreadBytes = 0;
  }

  /** Above the limit, ends the connections with the most unread bytes, one after the other. */
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
