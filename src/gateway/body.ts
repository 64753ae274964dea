import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { type Refusal, refuse } from "../domain/errors.ts";
import { JSON_BODY_BYTES_MAX } from "../domain/limits.ts";
import { type BodyResult, bad, parseJsonBody, tooLarge } from "./protocol.ts";

/** How much of a refused body is read and discarded, so that a client that is still sending gets its response. */
const DRAIN_BYTES_MAX = 32 * 1024 * 1024;
const DRAIN_MS = 10_000;
/** Chunks of one body. Each costs time and memory, however small it is; no client sends bodies byte by byte. */
const BODY_CHUNKS_MAX = 10_000;

type BytesResult = Exclude<BodyResult, { outcome: "read" }> | { outcome: "read"; bytes: Buffer };

/** Called with each chunk of a body that was read; for an upload with 0 bytes. A sender of much at a time is throttled. */
export type BodyRead = (socket: Socket, bytes: number) => void;

/** Where the memory of a body that comes in several chunks is counted, and the work of reading it. */
interface BodyOwner {
  budget: BodyBudget;
  keyId: string;
  onRead: BodyRead;
}

/**
 * Reads at most 256 KiB of JSON that have not all come with the head; always settles. After a refusal the rest is unread (`drainBody`).
 * @param contentLength undefined: chunked
 */
export const readJson = (
  req: IncomingMessage,
  contentLength: number | undefined,
  timeoutMs: number,
  owner: BodyOwner,
): Promise<BodyResult> =>
  readPieces(req, contentLength ?? JSON_BODY_BYTES_MAX, timeoutMs, owner, parseJsonBody);

export async function readBytes(
  req: IncomingMessage,
  contentLength: number | undefined,
  timeoutMs: number,
  owner: BodyOwner,
): Promise<BytesResult> {
  if (req.destroyed) return { outcome: "client_gone" };
  const read = (bytes: Buffer): BytesResult => ({ outcome: "read", bytes });
  return readPieces(req, contentLength ?? JSON_BODY_BYTES_MAX, timeoutMs, owner, read);
}

function readPieces<Result>(
  req: IncomingMessage,
  bytesMax: number,
  timeoutMs: number,
  owner: BodyOwner,
  finish: (bytes: Buffer) => Result,
): Promise<Result | Exclude<BodyResult, { outcome: "read" }>> {
  const pieces = new Pieces(bytesMax, owner);
  const crowded = pieces.begin();
  if (crowded) return Promise.resolve({ outcome: "refused", refusal: crowded });
  return new Promise((resolve) => {
    const timer = setTimeout(
      () => settle({ outcome: "refused", refusal: refuse("request_timeout") }),
      timeoutMs,
    );
    const settle = (result: Result | Exclude<BodyResult, { outcome: "read" }>): void => {
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
    const parse = (): void => settle(finish(pieces.bytes()));
    const gone = (): void => settle({ outcome: "client_gone" });
    req.on("data", take).on("end", parse).on("close", gone);
    // Never removed: an `error` without a listener ends the process. `close` follows it.
    req.on("error", ignore);
  });
}

const PIECES_BYTES_MIN = 4096;
/**
 * The least that an incomplete body counts. Bodies may take an eighth of the heap, and one request per 256 KiB of it may be in flight, so a
 * key's quarter of the memory is also a quarter of the requests in flight.
 */
const BODY_COUNTS_MIN = 32 * 1024;

/** An incomplete body. Chunks are copied into one buffer: as objects, small ones take far more memory than their bytes. */
class Pieces {
  readonly #bytesMax: number;
  readonly #owner: BodyOwner;
  #held = Buffer.alloc(0);
  #length = 0;
  #count = 0;
  #counted = 0;

  constructor(bytesMax: number, owner: BodyOwner) {
    this.#bytesMax = bytesMax;
    this.#owner = owner;
  }

  /** @returns the refusal if there is no memory left */
  begin(): Refusal | undefined {
    return this.#take(BODY_COUNTS_MIN);
  }

  /** @returns the refusal if the body is too large, has too many chunks, or there is no memory left */
  add(chunk: Buffer): Refusal | undefined {
    const length = this.#length + chunk.length;
    if (length > JSON_BODY_BYTES_MAX) return tooLarge();
    if (++this.#count > BODY_CHUNKS_MAX) {
      return bad(`the body comes in more than ${BODY_CHUNKS_MAX} pieces`);
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

/**
 * Discards what a refused client still sends: an immediate close would reset the connection, and the response would be lost. Bounded in
 * bytes, chunks and time. @param giveUp called at a bound: the connection must end
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
    // Chunks of the last read are still emitted.
    if (over) return;
    bytes += chunk.length;
    onRead(req.socket, chunk.length);
    over = bytes > DRAIN_BYTES_MAX || ++chunks > BODY_CHUNKS_MAX;
    if (over) giveUp();
  });
  req.resume();
}

/** The bound that was reached: on all incomplete bodies, or on those of one key. */
type BodyBound = "body_bytes" | "body_bytes_per_key";

/** One key may use this share of the memory for bodies. */
const KEY_SHARE = 1 / 4;

export type BodyBudget = ReturnType<typeof createBodyBudget>;

/** The memory for incomplete JSON bodies; each byte taken is returned once. @param totalMax bytes @param refused a body was refused */
export function createBodyBudget(totalMax: () => number, refused: (bound: BodyBound) => void) {
  const held = new Map<string, number>();
  let total = 0;

  function reached(keyId: string, bytes: number): BodyBound | undefined {
    const keyMax = Math.max(JSON_BODY_BYTES_MAX, totalMax() * KEY_SHARE);
    if ((held.get(keyId) ?? 0) + bytes > keyMax) return "body_bytes_per_key";
    return total + bytes > totalMax() ? "body_bytes" : undefined;
  }

  return {
    /** @returns the bound that is reached; then nothing was taken */
    take(keyId: string, bytes: number): BodyBound | undefined {
      const bound = reached(keyId, bytes);
      if (bound !== undefined) {
        refused(bound);
        return bound;
      }
      held.set(keyId, (held.get(keyId) ?? 0) + bytes);
      total += bytes;
      return undefined;
    },
    give(keyId: string, bytes: number): void {
      const left = (held.get(keyId) ?? 0) - bytes;
      if (left > 0) held.set(keyId, left);
      else held.delete(keyId);
      total -= bytes;
    },
  };
}
