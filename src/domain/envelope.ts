import type { Refusal } from "./errors.ts";
import type { LimitState } from "./limits.ts";

export interface ApiAnswer {
  status: number;
  body: string;
  headers?: readonly string[];
  /** Closed label for logs and metrics: `ok`, `replayed`, or the name of the refusal. */
  outcome: string;
  refused?: Refusal;
}

/** The result of a handler. A refusal becomes an answer where it is written, with the id of its request. */
export type HandlerResult = ApiAnswer | Refusal;

/** @param data JSON text of the data object */
export function success(data: string, headers?: readonly string[], outcome = "ok"): ApiAnswer {
  const body = `{"code":200,"msg":"success","data":${data}}`;
  return headers ? { status: 200, body, headers, outcome } : { status: 200, body, outcome };
}

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
  // RFC 9110 section 15.5.22.
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

/** The limits in an unauthenticated answer: zeros, and Reset now. */
export function noLimits(nowMs: number): LimitState {
  return { limit: 0, remaining: 0, resetAtMs: nowMs, concurrentLimit: 0, active: 0 };
}

/** Flat, as `writeHead` takes them. */
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

/** Rounded up, at least 1. */
export const retrySeconds = (ms: number): number => Math.max(1, Math.ceil(ms / 1000));
