import type { IncomingMessage } from "node:http";
import { type Refusal, refuse } from "../core/errors.ts";
import { parseJsonBytes } from "../core/json.ts";
import { JSON_BODY_BYTES_MAX } from "../core/request-limits.ts";
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

/**
 * Reads and parses a JSON body, at most 256 KiB in at most `timeoutMs` in all. Always settles; after a refusal the
 * rest of the body is still unread (see `drainBody`).
 * @param contentLength what the head says; undefined for a chunked body
 */
export async function readJson(
  req: IncomingMessage,
  contentLength: number | undefined,
  timeoutMs: number,
): Promise<BodyResult> {
  // What came with the head, Node's parser hands over once the handler has returned.
  await undefined;
  // Its `close` may have come while the key was looked up, and will not come again.
  if (req.destroyed) return { outcome: "client_gone" };
  // Nearly always all of it: no need for listeners and a timer. `end` will never come, which nobody waits for.
  if (contentLength !== undefined && contentLength > 0 && req.readableLength === contentLength) {
    return parseBytes(req.read() as Buffer);
  }
  return readPieces(req, timeoutMs);
}

function readPieces(req: IncomingMessage, timeoutMs: number): Promise<BodyResult> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    const timer = setTimeout(
      () => settle({ outcome: "refused", refusal: refuse("request_timeout") }),
      timeoutMs,
    );
    const settle = (result: BodyResult): void => {
      clearTimeout(timer);
      req.off("data", take).off("end", parse).off("close", gone);
      if (!req.complete) req.pause();
      resolve(result);
    };
    const take = (chunk: Buffer): void => {
      bytes += chunk.length;
      if (bytes > JSON_BODY_BYTES_MAX) settle({ outcome: "refused", refusal: tooLarge() });
      else if (chunks.push(chunk) > BODY_CHUNKS_MAX)
        settle({
          outcome: "refused",
          refusal: badBody(`the body comes in more than ${BODY_CHUNKS_MAX} pieces`),
        });
    };
    const parse = (): void => settle(parseBytes(Buffer.concat(chunks)));
    const gone = (): void => settle({ outcome: "client_gone" });
    req.on("data", take).on("end", parse).on("close", gone);
    // Stays: an `error` without a listener would end the process. A `close` follows it.
    req.on("error", ignore);
  });
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
 * connection, and the client would never see the answer. Bounded in bytes, pieces and time, then the connection ends.
 */
export function drainBody(req: IncomingMessage): void {
  if (req.complete || req.destroyed) return;
  let bytes = 0;
  let chunks = 0;
  const timer = setTimeout(() => req.destroy(), DRAIN_MS);
  req.on("error", () => clearTimeout(timer));
  req.on("close", () => clearTimeout(timer));
  req.on("end", () => clearTimeout(timer));
  req.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > DRAIN_BYTES_MAX || ++chunks > BODY_CHUNKS_MAX) req.destroy();
  });
  req.resume();
}
