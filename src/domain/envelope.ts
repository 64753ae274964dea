import type { Refusal } from "./errors.ts";
import type { LimitState } from "./limits.ts";

/** An answer before it meets the socket: status, JSON text, headers beyond those every answer has. */
export interface ApiAnswer {
  status: number;
  body: string;
  headers?: readonly string[];
  /** Closed label for logs and metrics: `ok`, `replayed` and the like, or the name of the refusal. */
  outcome: string;
  /** The refusal, for the log only. */
  refused?: Refusal;
}

/**
 * A 200 in the API's envelope.
 * @param data JSON text of the data object
 */
export function success(data: string, headers?: readonly string[], outcome = "ok"): ApiAnswer {
  const body = `{"code":200,"msg":"success","data":${data}}`;
  return headers ? { status: 200, body, headers, outcome } : { status: 200, body, outcome };
}

/** A refusal in the API's envelope, with the headers that belong to it. */
export function refusal(refused: Refusal, requestId: string): ApiAnswer {
  const { code, text, retryAfterSeconds, details, allow, shouldRetry } = refused;
  const envelope: Record<string, unknown> = { code, msg: text, error: text };
  const headers: string[] = [];
  if (retryAfterSeconds !== undefined) {
    envelope.retryAfter = retryAfterSeconds;
    headers.push("Retry-After", String(retryAfterSeconds));
  }
  if (details) envelope.details = details;
  envelope.request_id = requestId;
  if (refused.status === 401) headers.push("WWW-Authenticate", "Bearer");
  // RFC 9110 section 15.5.22: a 426 names the protocol to use.
  if (refused.status === 426) headers.push("Upgrade", "HTTP/1.1", "Connection", "Upgrade");
  if (allow !== undefined) headers.push("Allow", allow);
  if (shouldRetry === false) headers.push("x-should-retry", "false");
  const answer: ApiAnswer = {
    status: refused.status,
    body: JSON.stringify(envelope),
    headers,
    outcome: refused.name,
    refused,
  };
  return answer;
}

/** The headers on every response of the public port, flat as `writeHead` takes them. */
export function commonHeaders(state: LimitState, requestId: string, bodyBytes: number): string[] {
  return [
    "Content-Type",
    "application/json; charset=utf-8",
    "Content-Length",
    String(bodyBytes),
    "X-RateLimit-Limit",
    String(state.limit),
    "X-RateLimit-Remaining",
    String(state.remaining),
    "X-RateLimit-Reset",
    String(Math.ceil(state.resetAtMs / 1000)),
    "X-Concurrent-Limit",
    String(state.concurrentLimit),
    "X-Concurrent-Active",
    String(state.active),
    "X-Request-Id",
    requestId,
  ];
}

/** Milliseconds to the whole seconds a client should wait: rounded up, at least 1. */
export const retrySeconds = (ms: number): number => Math.max(1, Math.ceil(ms / 1000));
