import type { IncomingMessage } from "node:http";
import { type Refusal, refuse } from "../domain/errors.ts";
import { isIdentity } from "../domain/request-sizes.ts";

/** The headers that matter before the body is read. */
export interface RequestHead {
  authorization: string | undefined;
  idempotencyKey: string | undefined;
  contentType: string | undefined;
  contentLength: number | undefined;
  /** There is a Content-Encoding other than identity. */
  contentEncoding: boolean;
  forwardedFor: string | undefined;
  /** As it came; undefined where it came twice. */
  requestId: string | undefined;
  /** As it came; undefined where it came twice. */
  traceParent: string | undefined;
  traceState: string | undefined;
  hasBody: boolean;
  /** There is an Upgrade header. */
  upgrades: boolean;
}

/** Settings of the listener. */
interface HeadLimits {
  /** `server.max_header_lines`. */
  maxHeaderLines: number;
}

/** Header fields that a request may send once at most. */
const SENT_ONCE = new Set([
  "authorization",
  "content-encoding",
  "content-length",
  "content-type",
  "expect",
  "host",
  "idempotency-key",
  "transfer-encoding",
]);

/**
 * Reads the head and finds what a gateway must refuse although Node accepts it. RFC 9112 sections 3.2, 6.1, 6.3.
 * @returns the head, and the refusal if any; then the connection must close after the response, since another program on the
 *   way may frame this request differently
 */
export function readHead(
  req: IncomingMessage,
  { maxHeaderLines }: HeadLimits,
): { head: RequestHead; fault: Refusal | undefined } {
  const { values, repeated } = readFields(req.rawHeaders);
  const first = (name: string): string | undefined => values.get(name)?.[0];
  const only = (name: string): string | undefined =>
    values.get(name)?.length === 1 ? first(name) : undefined;
  const length = first("content-length");
  const contentLength = length === undefined ? undefined : Number(length);
  const coding = first("transfer-encoding");
  const head: RequestHead = {
    // With two of them it is ambiguous whose request it is.
    authorization: only("authorization"),
    idempotencyKey: first("idempotency-key"),
    contentType: first("content-type"),
    contentLength,
    contentEncoding: !isIdentity(first("content-encoding")),
    forwardedFor: values.get("x-forwarded-for")?.join(","),
    requestId: only("x-request-id"),
    traceParent: only("traceparent"),
    traceState: values.get("tracestate")?.join(","),
    hasBody: coding !== undefined || (contentLength !== undefined && contentLength > 0),
    upgrades: values.has("upgrade"),
  };
  const fault =
    versionFault(req) ??
    linesFault(req.rawHeaders.length / 2, maxHeaderLines) ??
    (hasUnderscore(values.keys()) ? underscoreFault : undefined) ??
    (repeated === undefined ? undefined : bad(`the ${repeated} header is sent twice`)) ??
    framingFault(req, head, coding, first("host")) ??
    expectationFault(req, first("expect"));
  return { head, fault };
}

/**
 * The values of each field by its name in lower case, in the order of their lines. `req.headers` joins or drops repeated fields.
 * @param lines a flat list of names and values
 * @returns also the first field that is repeated although it may be sent only once
 */
function readFields(lines: readonly string[]): {
  values: Map<string, string[]>;
  repeated: string | undefined;
} {
  const values = new Map<string, string[]>();
  let repeated: string | undefined;
  for (let at = 0; at < lines.length; at += 2) {
    const name = lines[at]!.toLowerCase();
    const value = lines[at + 1]!;
    const before = values.get(name);
    if (!before) {
      values.set(name, [value]);
      continue;
    }
    before.push(value);
    if (SENT_ONCE.has(name)) repeated ??= name;
  }
  return { values, repeated };
}

function hasUnderscore(names: Iterable<string>): boolean {
  for (const name of names) if (name.includes("_")) return true;
  return false;
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

const bad = (message: string): Refusal =>
  refuse("invalid_request", { text: `Invalid request: ${message}`, details: [{ path: "", message }] });

/** Many programs read `Transfer_Encoding` as `Transfer-Encoding`, and may frame the request differently. */
const underscoreFault = bad("a header name has an underscore");

/** A browser asks whether a page may send the request. Fetch standard section 3.3. */
export function isPreflight(req: IncomingMessage): boolean {
  if (req.method !== "OPTIONS") return false;
  return req.headers.origin !== undefined && req.headers["access-control-request-method"] !== undefined;
}

/** True for a WebSocket upgrade. Any other upgrade, such as `h2c`, is ignored, as HTTP allows. */
export function asksForWebSocket(req: IncomingMessage): boolean {
  const { upgrade } = req.headers;
  return upgrade !== undefined && /(^|,)\s*websocket\s*(,|$|\/)/i.test(upgrade);
}
