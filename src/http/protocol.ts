import type { IncomingMessage } from "node:http";
import { type Refusal, refuse } from "../core/errors.ts";

/** What the header lines of a request say that matters before its body; read in one pass. */
export interface RequestHead {
  authorization: string | undefined;
  idempotencyKey: string | undefined;
  contentType: string | undefined;
  contentLength: number | undefined;
  contentEncoding: boolean;
  forwardedFor: string | undefined;
  hasBody: boolean;
}

const SINGLE = new Set([
  "host",
  "authorization",
  "content-type",
  "content-length",
  "content-encoding",
  "transfer-encoding",
  "idempotency-key",
  "expect",
]);

/**
 * Reads the head and finds what a gateway must refuse though Node accepts it. RFC 9112 sections 3.2, 6.1, 6.3.
 * @returns the head, and the refusal if there is one; then the connection must be closed after the answer, since
 *   the next program on the way might frame this request differently
 */
export function readHead(req: IncomingMessage): { head: RequestHead; fault: Refusal | undefined } {
  const lines = req.rawHeaders;
  const seen = new Map<string, string>();
  let forwardedFor: string | undefined;
  const repeated = new Set<string>();
  for (let at = 0; at < lines.length; at += 2) {
    const name = lines[at]!.toLowerCase();
    if (name === "x-forwarded-for") {
      forwardedFor = forwardedFor === undefined ? lines[at + 1]! : `${forwardedFor},${lines[at + 1]!}`;
    } else if (SINGLE.has(name)) {
      if (seen.has(name)) repeated.add(name);
      seen.set(name, lines[at + 1]!);
    }
  }
  const [twice] = repeated;
  const fault = twice === undefined ? undefined : bad(`the ${twice} header is sent twice`);
  const length = seen.get("content-length");
  const coding = seen.get("transfer-encoding");
  const head: RequestHead = {
    authorization: repeated.has("authorization") ? undefined : seen.get("authorization"),
    idempotencyKey: seen.get("idempotency-key"),
    contentType: seen.get("content-type"),
    contentLength: length === undefined ? undefined : Number(length),
    contentEncoding: seen.has("content-encoding"),
    forwardedFor,
    hasBody: coding !== undefined || (length !== undefined && Number(length) > 0),
  };
  return { head, fault: versionFault(req) ?? fault ?? framingFault(req, head, coding, seen.has("host")) };
}

function versionFault(req: IncomingMessage): Refusal | undefined {
  const { httpVersionMajor: major, httpVersionMinor: minor } = req;
  return major === 1 && (minor === 0 || minor === 1) ? undefined : refuse("version_unsupported");
}

function framingFault(
  req: IncomingMessage,
  head: RequestHead,
  coding: string | undefined,
  hasHost: boolean,
): Refusal | undefined {
  if (!hasHost && req.httpVersionMinor === 1) return bad("the Host header is missing");
  if (!HOST.test(req.headers.host ?? "")) return bad("the Host header is not a host with an optional port");
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

/** Host and port, as far as a gateway can tell without resolving them; may be empty. RFC 9110 section 7.2. */
const HOST = /^[\w\-.~%!$&'()*+,;=:[\]]*$/;

const bad = (message: string): Refusal =>
  refuse("invalid_request", { text: `Invalid request: ${message}`, details: [{ path: "", message }] });

/** True for an upgrade that the client insists on; `h2c` is ignored, as HTTP wants. */
export function asksForWebSocket(req: IncomingMessage): boolean {
  const { upgrade } = req.headers;
  return upgrade !== undefined && /(^|,)\s*websocket\s*(,|$|\/)/i.test(upgrade);
}
