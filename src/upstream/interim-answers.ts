import type { Socket } from "node:net";

/** A longer interim answer is left to the client, which ends the connection. */
const INTERIM_BYTES_MAX = 8192;
const HEAD_END = "\r\n\r\n";
/** `HTTP/1.1 1`: where the first digit of the status is. */
const STATUS_AT = 9;
const ONE = 0x31;
const INTERIM = /^HTTP\/1\.[01] 1(?!01)/;

/**
 * Drops the interim answers (1xx) before the answer to each request. An upstream, or a proxy before it, may send any number
 * of them unasked (RFC 9110 15.2). undici ends the connection at a `100 Continue`, when the request has been sent and may
 * have run. 101 is kept: a connection that changes its protocol cannot be read any further. Decision 0003.
 *
 * @param socket a new connection that nobody has read from. One request at a time is written to it, and it is read with
 *   `read()`.
 * @returns the same socket
 */
export function withoutInterimAnswers<T extends Socket>(socket: T): T {
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

/** Whether these bytes can be the beginning of an interim answer, so that more of it must come. */
function mayBeInterim(bytes: Buffer): boolean {
  if (bytes.length > INTERIM_BYTES_MAX) return false;
  return bytes.length < STATUS_AT + 3 || INTERIM.test(statusLine(bytes));
}

const statusLine = (bytes: Buffer): string => bytes.toString("latin1", 0, STATUS_AT + 3);
