/** Every error a customer can see; docs/errors.md explains them. */

/** name: [HTTP status, envelope code, text]. */
const TABLE = {
  missing_api_key: [401, 401, "Missing API key"],
  invalid_api_key: [401, 401, "Invalid API key"],
  too_many_unknown_keys: [429, 2005, "Too many unknown API keys from this address; wait and retry"],
  invalid_request: [400, 400, "Invalid request"],
  insufficient_credits: [402, 402, "Insufficient credits"],
  account_suspended: [403, 403, "Account suspended"],
  endpoint_not_allowed: [403, 403, "This API key may not use this endpoint"],
  task_not_found: [404, 404, "Task not found"],
  path_not_found: [404, 404, "No such endpoint"],
  method_not_allowed: [405, 405, "Method not allowed"],
  request_timeout: [408, 408, "The request did not arrive in time"],
  idempotency_in_progress: [409, 409, "A request with this Idempotency-Key is still in progress"],
  payload_too_large: [413, 413, "Request body too large"],
  unsupported_media_type: [415, 415, "Unsupported media type"],
  expectation_failed: [417, 417, "Only Expect: 100-continue is supported"],
  idempotency_mismatch: [422, 422, "This Idempotency-Key was used with a different request"],
  upgrade_refused: [426, 426, "WebSocket is not served here; use plain HTTP/1.1"],
  headers_too_large: [431, 431, "Request headers too large"],
  rate_limited: [429, 2001, "Rate limit exceeded, please slow down"],
  concurrency_limited: [429, 2002, "Too many concurrent tasks; wait for one to finish"],
  daily_limited: [429, 2003, "Daily request limit exceeded"],
  upstream_rate_limited: [429, 2004, "The video generation service is rate limiting; retry with backoff"],
  spend_capped: [402, 2006, "Monthly credits of this API key exceeded"],
  slow_down: [429, 2007, "Too many requests a second with this API key; slow down"],
  internal: [500, 500, "Internal error"],
  upstream_refused: [502, 502, "The video generation service refused the request"],
  upstream_refused_gateway: [502, 502, "The video generation service refused the gateway"],
  upstream_failed: [502, 502, "The video generation service could not be reached; nothing is charged"],
  upstream_unclear: [
    502,
    502,
    "The video generation service gave no clear answer; nothing is charged unless the task is confirmed",
  ],
  upstream_timeout: [
    504,
    504,
    "The video generation service gave no answer in time; nothing is charged unless the task is confirmed",
  ],
  overloaded: [503, 503, "The service is busy; try again shortly"],
  maintenance: [503, 503, "Down for maintenance; retry later"],
  outcomes_unknown: [
    503,
    503,
    "Earlier requests of this account got no answer from the video generation service and are being cleared up; retry later",
  ],
  store_unavailable: [503, 503, "The rate-limit store is unavailable; retry shortly"],
  version_unsupported: [505, 505, "Only HTTP/1.1 and HTTP/1.0 are supported"],
} as const satisfies Record<string, readonly [status: number, code: number, text: string]>;

export type ErrorName = keyof typeof TABLE;

/** Common SDKs are told not to retry these. */
const DEFINITE: ReadonlySet<ErrorName> = new Set([
  "insufficient_credits",
  "spend_capped",
  "daily_limited",
  "endpoint_not_allowed",
  "upstream_refused",
]);

/** `path` is a JSON pointer such as `/shots/0/duration`. */
export interface Problem {
  path: string;
  message: string;
}

export interface Refusal {
  name: ErrorName;
  status: number;
  code: number;
  text: string;
  retryAfterSeconds?: number;
  details?: readonly Problem[];
  allow?: string;
  shouldRetry?: false;
  detail?: string;
  /** For the log only. */
  limit?: number;
  used?: number;
  limitOf?: "key" | "account";
  balance?: number;
}

/** @param extra `text` and `code` only where the row leaves them to the cause */
export function refuse(name: ErrorName, extra?: Partial<Omit<Refusal, "name">>): Refusal {
  const [status, code, text] = TABLE[name];
  const refusal: Refusal = { name, status, code, text, ...extra };
  if (DEFINITE.has(name)) refusal.shouldRetry = false;
  return refusal;
}

/** Answered from the same table. `detail` is logged, never sent. */
export class GatewayError extends Error {
  readonly refusal: Refusal;

  constructor(
    name: ErrorName,
    detail: string,
    options?: ErrorOptions & { retryAfterSeconds?: number; text?: string },
  ) {
    super(detail, options);
    this.name = "GatewayError";
    const { retryAfterSeconds, text } = options ?? {};
    this.refusal = refuse(name, {
      detail,
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
      ...(text === undefined ? {} : { text }),
    });
  }
}

export const ERROR_NAMES = Object.keys(TABLE) as ErrorName[];
