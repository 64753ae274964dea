import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { type Refusal, refuse } from "../domain/errors.ts";
import { parseJsonBytes } from "../domain/json.ts";
import { JSON_BODY_BYTES_MAX } from "../domain/request-limits.ts";
import type { BodyBudget } from "./body-budget.ts";
import type { RequestHead } from "./protocol.ts";

/** How much of a refused body is read on, so that a client that is still sending sees its answer. */
const DRAIN_BYTES_MAX = 32 * 1024 * 1024;
const DRAIN_MS = 10_000;
/** Pieces of one body: each costs time and memory of its own, however small it is. No client sends bodies byte by byte. */
const BODY_CHUNKS_MAX = 10_000;

export type BodyResult =
  | { outcome: "read"; value: unknown }
  | { outcome: "refused"; refusal: Refusal }
  | { outcome: "client_gone" };

/** application/json, alone or with charset=utf-8, which some write utf8. RFC 8259 section 11. */
const JSON_TYPE = /^application\/json[ \t]*(?:;[ \t]*(?:charset="?utf-?8"?[ \t]*;?[ \t]*)?)?$/i;
/** Longer values are refused unread: a pattern must never have much to chew on. */
const TYPE_CHARS_MAX = 100;

/** What can be refused about a JSON body from its headers alone. */
export function jsonHeadFault(head: RequestHead): Refusal | undefined {
  if (head.contentEncoding) {
    return refuse("unsupported_media_type", {
      text: "Unsupported media type: Content-Encoding is not supported",
    });
  }
  if (
    head.contentType === undefined ||
    head.contentType.length > TYPE_CHARS_MAX ||
    !JSON_TYPE.test(head.contentType)
  ) {
    return refuse("unsupported_media_type", {
      text: "Unsupported media type: send Content-Type: application/json (UTF-8)",
    });
  }
  return (head.contentLength ?? 0) > JSON_BODY_BYTES_MAX ? tooLarge() : undefined;
}

const tooLarge = (): Refusal =>
  refuse("payload_too_large", { text: `Request body too large: at most ${JSON_BODY_BYTES_MAX} bytes` });

const badBody = (message: string): Refusal =>
  refuse("invalid_request", { text: `Invalid request: ${message}`, details: [{ path: "", message }] });

/** Told of each piece of a body that was read, and on which connection; of an upload without its bytes. */
export type BodyRead = (socket: Socket, bytes: number) => void;

/** Where the memory of a body that comes in pieces is counted, and the work of reading it. */
export interface BodyOwner {
  budget: BodyBudget;
  keyId: string;
  onRead: BodyRead;
}

/**
 * Reads and parses a JSON body, at most 256 KiB in at most `timeoutMs` in all. Always settles; after a refusal the
 * rest of the body is still unread (see `drainBody`).
 * @param contentLength what the head says; undefined for a chunked body
 */
export async function readJson(
  req: IncomingMessage,
  contentLength: number | undefined,
  timeoutMs: number,
  owner: BodyOwner,
): Promise<BodyResult> {
  // What came with the head, Node's parser hands over once the handler has returned.
  await undefined;
  // Its `close` may have come while the key was looked up, and will not come again.
  if (req.destroyed) return { outcome: "client_gone" };
  // Nearly always all of it: no need for listeners and a timer. `end` will never come, which nobody waits for.
  if (contentLength !== undefined && contentLength > 0 && req.readableLength === contentLength) {
    if (contentLength > SMALL_BODY_BYTES) owner.onRead(req.socket, contentLength);
    return parseBytes(req.read() as Buffer);
  }
  return readPieces(req, contentLength ?? JSON_BODY_BYTES_MAX, timeoutMs, owner);
}

function readPieces(
  req: IncomingMessage,
  bytesMax: number,
  timeoutMs: number,
  owner: BodyOwner,
): Promise<BodyResult> {
  const pieces = new Pieces(bytesMax, owner);
  const crowded = pieces.begin();
  if (crowded) return Promise.resolve({ outcome: "refused", refusal: crowded });
  return new Promise((resolve) => {
    const timer = setTimeout(
      () => settle({ outcome: "refused", refusal: refuse("request_timeout") }),
      timeoutMs,
    );
    const settle = (result: BodyResult): void => {
      clearTimeout(timer);
      req.off("data", take).off("end", parse).off("close", gone);
      pieces.release();
      if (!req.complete) req.pause();
      resolve(result);
    };
    const take = (chunk: Buffer): void => {
      owner.onRead(req.socket, chunk.length);
      const refusal = pieces.add(chunk);
      if (refusal) settle({ outcome: "refused", refusal });
    };
    const parse = (): void => settle(parseBytes(pieces.bytes()));
    const gone = (): void => settle({ outcome: "client_gone" });
    req.on("data", take).on("end", parse).on("close", gone);
    // Stays: an `error` without a listener would end the process. A `close` follows it.
    req.on("error", ignore);
  });
}

/** Smaller bodies that come whole are not counted as work: nearly all are. */
const SMALL_BODY_BYTES = 4096;

const PIECES_BYTES_MIN = 4096;
/**
 * What a body under way counts as at least: a request that waits for the first byte takes a place in flight all the same. As the
 * memory for bodies is an eighth of the heap, and each 256 KiB of it is one request, a key's quarter of one is also
 * its quarter of the other.
 */
const BODY_COUNTS_MIN = 32 * 1024;

/** A body under way. Its pieces are copied together as they come: as objects, small ones take far more than their bytes. */
class Pieces {
  readonly #bytesMax: number;
  readonly #owner: BodyOwner;
  #held = Buffer.alloc(0);
  #length = 0;
  #count = 0;
  /** Taken of the budget. */
  #counted = 0;

  constructor(bytesMax: number, owner: BodyOwner) {
    this.#bytesMax = bytesMax;
    this.#owner = owner;
  }

  /** @returns the refusal of a body for which there is no room */
  begin(): Refusal | undefined {
    return this.#take(BODY_COUNTS_MIN);
  }

  /** @returns the refusal of a body that is too large or in too many pieces, or for which there is no memory */
  add(chunk: Buffer): Refusal | undefined {
    const length = this.#length + chunk.length;
    if (length > JSON_BODY_BYTES_MAX) return tooLarge();
    if (++this.#count > BODY_CHUNKS_MAX) {
      return badBody(`the body comes in more than ${BODY_CHUNKS_MAX} pieces`);
    }
    const refusal = length > this.#held.length ? this.#grow(length) : undefined;
    if (refusal) return refusal;
    chunk.copy(this.#held, this.#length);
    this.#length = length;
    return undefined;
  }

  bytes(): Buffer {
    return this.#held.subarray(0, this.#length);
  }

  /** Its memory counts no more. */
  release(): void {
    this.#owner.budget.give(this.#owner.keyId, this.#counted);
  }

  #grow(needed: number): Refusal | undefined {
    const roomy = Math.max(2 * this.#held.length, PIECES_BYTES_MIN);
    const size = Math.max(needed, Math.min(roomy, this.#bytesMax));
    const refusal = this.#take(size);
    if (refusal) return refusal;
    const larger = Buffer.allocUnsafeSlow(size);
    this.#held.copy(larger, 0, 0, this.#length);
    this.#held = larger;
    return undefined;
  }

  /** Takes what is missing of so many bytes. */
  #take(bytes: number): Refusal | undefined {
    if (bytes <= this.#counted) return undefined;
    const bound = this.#owner.budget.take(this.#owner.keyId, bytes - this.#counted);
    if (bound) {
      const detail = `server.max_body_bytes_in_flight: ${bound} is reached`;
      return refuse("overloaded", { retryAfterSeconds: 1, detail });
    }
    this.#counted = bytes;
    return undefined;
  }
}

const ignore = (): void => undefined;

function parseBytes(bytes: Buffer): BodyResult {
  const parsed = parseJsonBytes(bytes);
  return parsed.ok
    ? { outcome: "read", value: parsed.value }
    : { outcome: "refused", refusal: badBody(parsed.message) };
}

/**
 * Reads on and forgets what a client is still sending after its refusal: closing at once would reset the
 * connection, and the client would never see the answer. Bounded in bytes, pieces and time.
 * @param giveUp there is more than is read: the connection must end
 */
export function drainBody(req: IncomingMessage, onRead: BodyRead, giveUp: () => void): void {
  if (req.complete || req.destroyed) return;
  let bytes = 0;
  let chunks = 0;
  let over = false;
  const timer = setTimeout(() => req.destroy(), DRAIN_MS);
  req.on("error", () => clearTimeout(timer));
  req.on("close", () => clearTimeout(timer));
  req.on("end", () => clearTimeout(timer));
  req.on("data", (chunk: Buffer) => {
    // What the last read has brought still comes.
    if (over) return;
    bytes += chunk.length;
    onRead(req.socket, chunk.length);
    over = bytes > DRAIN_BYTES_MAX || ++chunks > BODY_CHUNKS_MAX;
    if (over) giveUp();
  });
  req.resume();
}
