/** Headers of answers, by name. */

const count = { type: "integer", minimum: 0 } as const;

/** On every answer of the public port, whatever it is; named as `commonHeaders` writes them. */
export const COMMON_HEADERS = {
  "X-RateLimit-Limit": {
    description: "Generation requests that the key may make in any 60 seconds; 0 where no key is known.",
    required: true,
    schema: count,
    example: 20,
  },
  "X-RateLimit-Remaining": {
    description: "How many of them are left now.",
    required: true,
    schema: count,
    example: 19,
  },
  "X-RateLimit-Reset": {
    description:
      "Unix time in seconds at which the oldest counted request leaves the window; now, if none is counted.",
    required: true,
    schema: count,
    example: 1_795_275_660,
  },
  "X-Concurrent-Limit": {
    description: "Tasks that the key may have at the same time; 0 where no key is known.",
    required: true,
    schema: count,
    example: 3,
  },
  "X-Concurrent-Active": {
    description: "Tasks that it has now; generations whose task is not known yet count.",
    required: true,
    schema: count,
    example: 1,
  },
  "X-Request-Id": {
    description:
      "Names this request in the operator's log; on an error also in `request_id`. It is the request's own " +
      "`X-Request-Id`, if that is 1 to 64 letters, digits, dots, dashes and underscores and neither begins with `req_` " +
      "nor holds `sk_`; else one of the gateway.",
    required: true,
    schema: { type: "string", pattern: "^[\\w.~-]+$" },
    example: "req_mi8w3k1q5f0c2a9d000001",
  },
} as const;

/** On some answers. */
export const FURTHER_HEADERS = {
  "Retry-After": {
    description: "Seconds to wait before trying again; the same number as `retryAfter`.",
    schema: { type: "integer", minimum: 1 },
    example: 7,
  },
  "x-should-retry": {
    description:
      "`false` where a program must not repeat the request by itself: credits or the day are used up, the generator has " +
      "refused the request or the gateway, or a generation without an `Idempotency-Key` may have made a task. Else absent.",
    schema: { type: "string", const: "false" },
    example: "false",
  },
  "WWW-Authenticate": {
    description: "How to authenticate. RFC 9110 section 11.6.1.",
    schema: { type: "string", const: "Bearer" },
    example: "Bearer",
  },
  Allow: {
    description: "The method that the path has; with 405.",
    schema: { type: "string", enum: ["GET", "POST"] },
    example: "POST",
  },
  Upgrade: {
    description: "The protocol to use. RFC 9110 section 15.5.22.",
    schema: { type: "string", const: "HTTP/1.1" },
    example: "HTTP/1.1",
  },
  "Idempotency-Replayed": {
    description:
      "`true` where this is the stored answer of the first request with the same `Idempotency-Key`; nothing was charged again.",
    schema: { type: "string", const: "true" },
    example: "true",
  },
  "X-Gateway-Request-Id": {
    description:
      "The gateway's own id of this request, where `X-Request-Id` is the client's. Unique, and the name of the request " +
      "in the operator's ledger.",
    schema: { type: "string", pattern: "^req_\\w+$" },
    example: "req_mi8w3k1q5f0c2a9d000001",
  },
  "X-Gateway-Degraded": {
    description:
      "`store` while the gateway works without its store: this request was neither counted nor charged, and the five " +
      "numbers are zeros.",
    schema: { type: "string", const: "store" },
    example: "store",
  },
} as const;

const ref = (name: string) => ({ $ref: `#/components/headers/${name}` });

/** References to the headers of one answer: the common ones, and these. */
export function headersOf(further: Iterable<string>): Record<string, { $ref: string }> {
  const names = [...Object.keys(COMMON_HEADERS), "X-Gateway-Request-Id", ...new Set(further)];
  return Object.fromEntries(names.map((name) => [name, ref(name)]));
}
