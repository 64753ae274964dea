import type { Socket } from "node:net";
import type { buildConnector } from "undici";

/** A longer interim answer is left to the client, which ends the connection. */
const INTERIM_BYTES_MAX = 8192;
const HEAD_END = "\r\n\r\n";
const STATUS_AT = 9;
const ONE = 0x31;
const INTERIM = /^HTTP\/1\.[01] 1(?!01)/;

/**
 * Drops unasked interim answers (1xx, RFC 9110 15.2): undici ends the connection at a `100 Continue`, when the request may have run. 101 is
 * kept. Decision 0003. @param connect for a client that sends one request at a time on a connection
 */
export const skippingInterimAnswers =
  (connect: buildConnector.connector): buildConnector.connector =>
  (to, connected) =>
    connect(to, (...result) =>
      result[0] ? connected(...result) : connected(null, withoutInterimAnswers(result[1])),
    );

/** @param socket unread so far, read with `read()` @returns the same socket */
function withoutInterimAnswers<T extends Socket>(socket: T): T {
  const read = socket.read;
  let held: Buffer | undefined;
  // The first bytes after something was written are the beginning of an answer; all others are left as they are.
  let answeredBytes = socket.bytesWritten;
  socket.read = (size?: number): Buffer | null => {
    const chunk = read.call(socket, size) as Buffer | null;
    if (chunk === null) return null;
    const { bytesWritten } = socket;
    if (bytesWritten === answeredBytes) return chunk;
    const isFinal = held === undefined && chunk.length > STATUS_AT && chunk[STATUS_AT] !== ONE;
    const bytes = isFinal ? chunk : behindInterim(held === undefined ? chunk : Buffer.concat([held, chunk]));
    if (isFinal || !mayBeInterim(bytes)) {
      answeredBytes = bytesWritten;
      held = undefined;
      return bytes;
    }
    held = bytes;
    return null;
  };
  return socket;
}

function behindInterim(bytes: Buffer): Buffer {
  let rest = bytes;
  while (INTERIM.test(statusLine(rest))) {
    const end = rest.indexOf(HEAD_END);
    if (end === -1) break;
    rest = rest.subarray(end + HEAD_END.length);
  }
  return rest;
}

/** True if these bytes can begin an interim (1xx) answer, so more must follow. */
function mayBeInterim(bytes: Buffer): boolean {
  if (bytes.length > INTERIM_BYTES_MAX) return false;
  return bytes.length < STATUS_AT + 3 || INTERIM.test(statusLine(bytes));
}

const statusLine = (bytes: Buffer): string => bytes.toString("latin1", 0, STATUS_AT + 3);
