import type { IncomingMessage } from "node:http";
import { type Refusal, refuse } from "../core/errors.ts";
import { isIdentity } from "../core/media.ts";

/** What the header lines of a request say that matters before its body; read in one pass. */
export interface RequestHead {
  authorization: string | undefined;
  idempotencyKey: string | undefined;
  contentType: string | undefined;
  contentLength: number | undefined;
  /** There is a Content-Encoding other than identity. */
  contentEncoding: boolean;
  forwardedFor: string | undefined;
  /** As it came; the empty string where it came twice. */
  requestId: string | undefined;
  /** As it came; the empty string where it came twice. */
  traceParent: string | undefined;
  traceState: string | undefined;
  hasBody: boolean;
  /** There is an Upgrade header. */
  upgrades: boolean;
}

/** What one request's header may be; settings of the listener. */
export interface HeadLimits {
  /** `server.max_header_lines`. */
  maxHeaderLines: number;
}

/** Lengths of the header names that matter here: most lines are passed over without a look at their letters. */
const LENGTHS = new Set(
  [
    "host",
    "expect",
    "upgrade",
    "tracestate",
    "traceparent",
    "x-request-id",
    "content-type",
    "authorization",
    "content-length",
    "idempotency-key",
    "x-forwarded-for",
    "content-encoding",
    "transfer-encoding",
  ].map((name) => name.length),
);

/**
 * Reads the head and finds what a gateway must refuse though Node accepts it. RFC 9112 sections 3.2, 6.1, 6.3.
 * Reads the raw lines: `req.headers` would be built for each request, and shows no duplicates.
 * @returns the head, and the refusal if there is one; then the connection must be closed after the answer, since
 *   the next program on the way might frame this request differently
 */
export function readHead(
  req: IncomingMessage,
  { maxHeaderLines }: HeadLimits,
): { head: RequestHead; fault: Refusal | undefined } {
  const lines = req.rawHeaders;
  let twice: string | undefined;
  let hasUnderscore = false;
  let host: string | undefined;
  let expect: string | undefined;
  let authorization: string | undefined;
  let idempotencyKey: string | undefined;
  let contentType: string | undefined;
  let length: string | undefined;
  let encoding: string | undefined;
  let coding: string | undefined;
  let forwardedFor: string | undefined;
  let requestId: string | undefined;
  let traceParent: string | undefined;
  let traceState: string | undefined;
  let upgrades = false;
  for (let at = 0; at < lines.length; at += 2) {
    if (lines[at]!.includes("_")) hasUnderscore = true;
    if (!LENGTHS.has(lines[at]!.length)) continue;
    const value = lines[at + 1]!;
    const name = lines[at]!.toLowerCase();
    const once = (before: string | undefined): string => {
      if (before !== undefined) twice ??= name;
      return value;
    };
    switch (name) {
      case "host":
        host = once(host);
        break;
      case "expect":
        expect = once(expect);
        break;
      case "upgrade":
        upgrades = true;
        break;
      case "content-type":
        contentType = once(contentType);
        break;
      case "authorization":
        authorization = once(authorization);
        break;
      case "content-length":
        length = once(length);
        break;
      case "idempotency-key":
        idempotencyKey = once(idempotencyKey);
        break;
      case "content-encoding":
        encoding = once(encoding);
        break;
      case "transfer-encoding":
        coding = once(coding);
        break;
      case "x-forwarded-for":
        forwardedFor = forwardedFor === undefined ? value : `${forwardedFor},${value}`;
        break;
      case "x-request-id":
        requestId = requestId === undefined ? value : "";
        break;
      case "traceparent":
        traceParent = traceParent === undefined ? value : "";
        break;
      case "tracestate":
        traceState = traceState === undefined ? value : `${traceState},${value}`;
        break;
    }
  }
  const contentLength = length === undefined ? undefined : Number(length);
  const head: RequestHead = {
    // Of two, nobody can tell whose request it is.
    authorization: twiceNamed(lines, "authorization", twice) ? undefined : authorization,
    idempotencyKey,
    contentType,
    contentLength,
    contentEncoding: !isIdentity(encoding),
    forwardedFor,
    requestId,
    traceParent,
    traceState,
    hasBody: coding !== undefined || (contentLength !== undefined && contentLength > 0),
    upgrades,
  };
  const repeated = twice === undefined ? undefined : bad(`the ${twice} header is sent twice`);
  const fault =
    versionFault(req) ??
    linesFault(lines.length / 2, maxHeaderLines) ??
    (hasUnderscore ? underscoreFault : undefined) ??
    repeated ??
    framingFault(req, head, coding, host) ??
    expectationFault(req, expect);
  return { head, fault };
}

function linesFault(lines: number, linesMax: number): Refusal | undefined {
  if (lines <= linesMax) return undefined;
  return refuse("headers_too_large", { text: `Request headers too large: at most ${linesMax} lines` });
}

/** @param twice the first header that is sent twice; undefined: there is none */
function twiceNamed(lines: readonly string[], wanted: string, twice: string | undefined): boolean {
  if (twice === undefined || twice === wanted) return twice === wanted;
  return lines.filter((line, at) => at % 2 === 0 && line.toLowerCase() === wanted).length > 1;
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

/** A server must ignore what an HTTP/1.0 request expects. RFC 9110 section 10.1.1. */
function expectationFault(req: IncomingMessage, expect: string | undefined): Refusal | undefined {
  if (expect === undefined || req.httpVersionMinor === 0) return undefined;
  return expect.toLowerCase() === "100-continue" ? undefined : refuse("expectation_failed");
}

/** Host and port, as far as a gateway can tell without resolving them; HTTP/1.0 may leave them out. RFC 9110 section 7.2. */
const HOST = /^[\w\-.~%!$&'()*+,;=:[\]]*$/;

const bad = (message: string): Refusal =>
  refuse("invalid_request", { text: `Invalid request: ${message}`, details: [{ path: "", message }] });

/** Many programs read `Transfer_Encoding` as `Transfer-Encoding`: the next one on the way might frame it differently. */
const underscoreFault = bad("a header name has an underscore");

/** A browser asks whether its page may call: CORS, Fetch standard section 3.3. */
export function isPreflight(req: IncomingMessage): boolean {
  if (req.method !== "OPTIONS") return false;
  return req.headers.origin !== undefined && req.headers["access-control-request-method"] !== undefined;
}

/** True for an upgrade that the client insists on; `h2c` is ignored, as HTTP wants. */
export function asksForWebSocket(req: IncomingMessage): boolean {
  const { upgrade } = req.headers;
  return upgrade !== undefined && /(^|,)\s*websocket\s*(,|$|\/)/i.test(upgrade);
}
