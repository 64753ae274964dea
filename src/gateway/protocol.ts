import type { IncomingMessage } from "node:http";
import { type Refusal, refuse } from "../domain/errors.ts";
import { parseJsonBytes } from "../domain/json.ts";
import { isIdentity, JSON_BODY_BYTES_MAX } from "../domain/limits.ts";
import type { BodyRead } from "./body.ts";

export interface RequestHead {
  authorization: string | undefined;
  idempotencyKey: string | undefined;
  contentType: string | undefined;
  contentLength: number | undefined;
  contentEncoding: boolean;
  forwardedFor: string | undefined;
  /** As it came; undefined where it came twice. */
  requestId: string | undefined;
  /** As it came; undefined where it came twice. */
  traceParent: string | undefined;
  traceState: string | undefined;
  hasBody: boolean;
  upgrades: boolean;
}

interface HeadLimits {
  maxHeaderLines: number;
}

/** The header fields that are read. The first eight may be sent once at most. */
const FIELDS = [
  "authorization",
  "content-encoding",
  "content-length",
  "content-type",
  "expect",
  "host",
  "idempotency-key",
  "transfer-encoding",
  "traceparent",
  "tracestate",
  "upgrade",
  "x-forwarded-for",
  "x-request-id",
] as const;
const SENT_ONCE = 8;

type Field = (typeof FIELDS)[number];

/** Where a field is in `FIELDS`, by its usual spellings. */
const PLACES: ReadonlyMap<string, number> = new Map(
  FIELDS.flatMap((name, place) =>
    [name, name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase())].map((spelling): [string, number] => [
      spelling,
      place,
    ]),
  ),
);

const placeOf = (name: Field): number => FIELDS.indexOf(name);
const AUTHORIZATION = placeOf("authorization");
const CONTENT_ENCODING = placeOf("content-encoding");
const CONTENT_LENGTH = placeOf("content-length");
const CONTENT_TYPE = placeOf("content-type");
const EXPECT = placeOf("expect");
const HOST_FIELD = placeOf("host");
const IDEMPOTENCY_KEY = placeOf("idempotency-key");
const TRANSFER_ENCODING = placeOf("transfer-encoding");
const TRACE_PARENT = placeOf("traceparent");
const TRACE_STATE = placeOf("tracestate");
const UPGRADE = placeOf("upgrade");
const FORWARDED_FOR = placeOf("x-forwarded-for");
const REQUEST_ID = placeOf("x-request-id");

/**
 * Finds what must be refused although Node accepts it. RFC 9112 sections 3.2, 6.1, 6.3.
 * @returns with a refusal the connection must close: another program on the way may frame this request differently
 */
export function readHead(
  req: IncomingMessage,
  { maxHeaderLines }: HeadLimits,
): { head: RequestHead; fault: Refusal | undefined } {
  const { values, again, repeated, hasUnderscore } = readFields(req.rawHeaders);
  const length = values[CONTENT_LENGTH];
  const contentLength = length === undefined ? undefined : Number(length);
  const coding = values[TRANSFER_ENCODING];
  const only = (place: number): string | undefined => ((again >> place) & 1 ? undefined : values[place]);
  const head: RequestHead = {
    // With two of them it is ambiguous whose request it is.
    authorization: only(AUTHORIZATION),
    idempotencyKey: values[IDEMPOTENCY_KEY],
    contentType: values[CONTENT_TYPE],
    contentLength,
    contentEncoding: values[CONTENT_ENCODING] !== undefined && !isIdentity(values[CONTENT_ENCODING]),
    forwardedFor: values[FORWARDED_FOR],
    requestId: only(REQUEST_ID),
    traceParent: only(TRACE_PARENT),
    traceState: values[TRACE_STATE],
    hasBody: coding !== undefined || (contentLength !== undefined && contentLength > 0),
    upgrades: values[UPGRADE] !== undefined,
  };
  const fault =
    versionFault(req) ??
    linesFault(req.rawHeaders.length / 2, maxHeaderLines) ??
    (hasUnderscore ? underscoreFault : undefined) ??
    (repeated === undefined ? undefined : bad(`the ${repeated} header is sent twice`)) ??
    framingFault(req, head, coding, values[HOST_FIELD]) ??
    expectationFault(req, values[EXPECT]);
  return { head, fault };
}

/**
 * `req.headers` joins or drops repeated fields. @param lines a flat list of names and values
 * @returns values by place, those of a list joined by commas. `again`: a bit per repeated field; `repeated`: the first not allowed to be
 */
function readFields(lines: readonly string[]) {
  const values = new Array<string | undefined>(FIELDS.length).fill(undefined);
  let again = 0;
  let repeated: Field | undefined;
  let hasUnderscore = false;
  for (let at = 0; at < lines.length; at += 2) {
    const name = lines[at]!;
    const place = PLACES.get(name) ?? PLACES.get(name.toLowerCase());
    if (place === undefined) {
      hasUnderscore ||= name.includes("_");
      continue;
    }
    const before = values[place];
    if (before === undefined) {
      values[place] = lines[at + 1]!;
      continue;
    }
    again |= 1 << place;
    if (place < SENT_ONCE) repeated ??= FIELDS[place];
    else values[place] = `${before},${lines[at + 1]}`;
  }
  return { values, again, repeated, hasUnderscore };
}

function linesFault(lines: number, linesMax: number): Refusal | undefined {
  if (lines <= linesMax) return undefined;
  return refuse("headers_too_large", { text: `Request headers too large: at most ${linesMax} lines` });
}

function versionFault(req: IncomingMessage): Refusal | undefined {
  const { httpVersionMajor: major, httpVersionMinor: minor } = req;
  return major === 1 && (minor === 0 || minor === 1) ? undefined : refuse("version_unsupported");
}

function framingFault(
  req: IncomingMessage,
  head: RequestHead,
  coding: string | undefined,
  host: string | undefined,
): Refusal | undefined {
  if (host === undefined && req.httpVersionMinor === 1) return bad("the Host header is missing");
  if (host === "") return bad("the Host header is empty");
  if (!HOST.test(host ?? "")) return bad("the Host header is not a host with an optional port");
  if (!req.url?.startsWith("/")) return bad("the request target must be a path");
  if (coding !== undefined) {
    if (req.httpVersionMinor === 0) return bad("HTTP/1.0 has no Transfer-Encoding");
    if (coding.toLowerCase() !== "chunked") return bad("Transfer-Encoding must be exactly chunked");
    if (head.contentLength !== undefined)
      return bad("Content-Length and Transfer-Encoding exclude each other");
  }
  if (head.hasBody && (req.method === "GET" || req.method === "HEAD"))
    return bad(`a ${req.method} has no body`);
  return undefined;
}

/** A server must ignore the Expect header of an HTTP/1.0 request. RFC 9110 section 10.1.1. */
function expectationFault(req: IncomingMessage, expect: string | undefined): Refusal | undefined {
  if (expect === undefined || req.httpVersionMinor === 0) return undefined;
  return expect.toLowerCase() === "100-continue" ? undefined : refuse("expectation_failed");
}

/** Host with an optional port, unresolved; HTTP/1.0 may omit both. RFC 9110 section 7.2. */
const HOST = /^[\w\-.~%!$&'()*+,;=:[\]]*$/;

export const bad = (message: string): Refusal =>
  refuse("invalid_request", { text: `Invalid request: ${message}`, details: [{ path: "", message }] });

/** Many programs read `Transfer_Encoding` as `Transfer-Encoding`, and may frame the request differently. */
const underscoreFault = bad("a header name has an underscore");

/** A browser asks whether a page may send the request. Fetch standard section 3.3. */
export function isPreflight(req: IncomingMessage): boolean {
  if (req.method !== "OPTIONS") return false;
  return req.headers.origin !== undefined && req.headers["access-control-request-method"] !== undefined;
}

/** True for a WebSocket upgrade. Any other upgrade, such as `h2c`, is ignored, as HTTP allows. */
export function isWebSocketUpgrade(req: IncomingMessage): boolean {
  const { upgrade } = req.headers;
  return upgrade !== undefined && /(^|,)\s*websocket\s*(,|$|\/)/i.test(upgrade);
}

// JSON bodies, as nearly all come: complete, with the head.

/** application/json, alone or with charset=utf-8, which some clients spell utf8. RFC 8259 section 11. */
const JSON_TYPE = /^application\/json[ \t]*(?:;[ \t]*(?:charset="?utf-?8"?[ \t]*;?[ \t]*)?)?$/i;
/** Longer values are refused without matching, which bounds the time that the pattern takes. */
const TYPE_CHARS_MAX = 100;

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

export const tooLarge = (): Refusal =>
  refuse("payload_too_large", { text: `Request body too large: at most ${JSON_BODY_BYTES_MAX} bytes` });

export type BodyResult =
  | { outcome: "read"; value: unknown }
  | { outcome: "refused"; refusal: Refusal }
  | { outcome: "client_gone" };

/** Smaller complete bodies are not counted as work; nearly all bodies are smaller. */
const SMALL_BODY_BYTES = 4096;

/**
 * A body that is complete needs no memory budget, so it passes while incomplete bodies use the budget up. Decision 0020. Node's parser
 * passes on what came with the head once the request's handler has returned: call it in a later microtask. @returns undefined for an incomplete body
 */
export function completeJson(
  req: IncomingMessage,
  contentLength: number | undefined,
  onRead: BodyRead,
): BodyResult | undefined {
  // `close` may have been emitted while the key was looked up, and is not emitted again.
  if (req.destroyed) return { outcome: "client_gone" };
  if (contentLength === undefined || contentLength === 0 || req.readableLength !== contentLength)
    return undefined;
  if (contentLength > SMALL_BODY_BYTES) onRead(req.socket, contentLength);
  return parseJsonBody(req.read() as Buffer);
}

export function parseJsonBody(bytes: Buffer): BodyResult {
  const parsed = parseJsonBytes(bytes);
  return parsed.ok
    ? { outcome: "read", value: parsed.value }
    : { outcome: "refused", refusal: bad(parsed.message) };
}
