import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Exchange } from "../http-exchange.ts";
import type { LimitedConnection } from "./connection-limits.ts";

export interface ReceivedRequest {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly expectsContinue: boolean;
  /** Undefined while it waits to be started, and for one that is dropped. */
  exchange: Exchange | undefined;
}

/** One client connection of the public port: its requests, its responses, and whether it is read. */
export class ClientConnection implements LimitedConnection {
  readonly address: string;
  readonly trusted: boolean;
  /** Who is throttled for what is read: its address, or the account that has sent an upload on it. */
  payer: string;
  /** The upload that its account pays for. */
  upload: IncomingMessage | undefined;
  /** With TLS, the decrypting socket once the handshake is complete. */
  socket: Socket;
  /** Requests that are incomplete, or whose responses are pending; oldest first. No `Map`: decision 0072. */
  readonly pendingRequests: ReceivedRequest[] = [];
  /** Requests that have not been started. Nothing is read while there are any. */
  readonly waitingRequests: ReceivedRequest[] = [];
  /** Bytes of responses that are written and that the client has not read. */
  unreadBytes = 0;
  /** `bytesRead` of the socket when its last request ended. */
  bytesBefore = 0;
  /** A chunked body that no handler reads yet. Nothing is read from the socket until one does. */
  unreadBody: IncomingMessage | undefined;
  /** Nothing more is read; the connection ends after its pending responses. */
  isEnding = false;
  /** It exceeds a connection limit: its first request is refused. */
  isRefused = false;
  isUsed = false;
  lastActive: number;
  #endPause: (() => void) | undefined;

  constructor(socket: Socket, peer: { address: string; trusted: boolean }, lastActive: number) {
    this.socket = socket;
    this.address = peer.address;
    this.payer = peer.address;
    this.trusted = peer.trusted;
    this.lastActive = lastActive;
  }

  isIdle(): boolean {
    return this.pendingRequests.length === 0;
  }

  isSending(): boolean {
    return this.pendingRequests.every(({ req }) => !req.complete);
  }

  secured(socket: Socket): void {
    this.socket = socket;
    if (this.#endPause) this.#endPause = pauseReading(socket);
  }

  pauseReading(): void {
    this.#endPause ??= pauseReading(this.socket);
  }

  /** Reads on, unless the connection itself has a reason not to. */
  resumeReading(): void {
    if (this.isEnding || this.unreadBody || this.waitingRequests.length > 0) return;
    this.#endPause?.();
    this.#endPause = undefined;
  }
}

/** Node's server resumes a connection after each request and while it reads a body; during the pause that is undone. @returns ends the pause */
export function pauseReading(socket: Socket): () => void {
  let flows = !socket.isPaused();
  let resumed = false;
  const onResume = (): void => {
    flows = true;
    if (!socket.isPaused()) socket.pause();
    // The event belongs to a `resume` from before the pause. Node reads again although the socket counts as paused, and `pause`
    // has an effect on a flowing socket only, so it is paused at the next `resume`. Once only: by then Node may have paused it
    // itself because the client does not take its responses.
    else if (!resumed) {
      resumed = true;
      socket.resume();
      return;
    }
    resumed = false;
  };
  socket.on("resume", onResume);
  socket.pause();
  return () => {
    socket.off("resume", onResume);
    // A socket that Node paused itself, because nobody reads its body, stays paused: otherwise each pause would allow one more
    // read.
    if (flows) socket.resume();
  };
}
