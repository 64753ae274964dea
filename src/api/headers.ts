import { reference } from "./builder.ts";

/** Headers of answers, by name. */

const count = (description: string, example: number) => ({
  description,
  required: true,
  schema: { type: "integer", minimum: 0 },
  example,
});

/** A header that has one value where it is there at all. */
const flag = (value: string, description: string) => ({
  description,
  schema: { type: "string", const: value },
  example: value,
});

/** On every answer of the public port, whatever it is; named as `commonHeaders` writes them. */
export const COMMON_HEADERS = {
  "X-RateLimit-Limit": count(
    "Generation requests that the key may make in any 60 seconds; 0 where no key is known.",
    20,
  ),
  "X-RateLimit-Remaining": count("How many of them are left now.", 19),
  "X-RateLimit-Reset": count(
    "Unix time in seconds at which the oldest counted request leaves the window; now, if none is counted.",
    1_795_275_660,
  ),
  "X-Concurrent-Limit": count("Tasks that the key may have at the same time; 0 where no key is known.", 3),
  "X-Concurrent-Active": count("Tasks that it has now; generations whose task is not known yet count.", 1),
  "X-Request-Id": {
    description:
      "Names this request in the operator's log; on an error also in `request_id`. It is the request's own " +
      "`X-Request-Id`, if that is 1 to 64 letters, digits, dots, dashes and underscores and neither begins with `req_` " +
      "nor holds `sk_` or `tgm_`; else one of the gateway.",
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
  "x-should-retry": flag(
    "false",
    "`false` where a program must not repeat the request by itself: credits or the day are used up, the generator has " +
      "refused the request or the gateway, or a generation without an `Idempotency-Key` may have made a task. Else absent.",
  ),
  "WWW-Authenticate": flag("Bearer", "How to authenticate. RFC 9110 section 11.6.1."),
  Allow: {
    description: "The method that the path has; with 405.",
    schema: { type: "string", enum: ["GET", "POST"] },
    example: "POST",
  },
  Upgrade: flag("HTTP/1.1", "The protocol to use. RFC 9110 section 15.5.22."),
  "Idempotency-Replayed": flag(
    "true",
    "`true` where this is the stored answer of the first request with the same `Idempotency-Key`; nothing was charged again.",
  ),
  "X-Gateway-Request-Id": {
    description:
      "The gateway's own id of this request, where `X-Request-Id` is the client's. Unique, and the name of the request " +
      "in the operator's ledger.",
    schema: { type: "string", pattern: "^req_\\w+$" },
    example: "req_mi8w3k1q5f0c2a9d000001",
  },
  "X-Gateway-Degraded": flag(
    "store",
    "`store` while the gateway works without its store: this request was neither counted nor charged. On a success the five " +
      "numbers are the key's limits with nothing in use; else they are zeros.",
  ),
} as const;

/** References to the headers of one answer: the common ones, and these. */
export function headersOf(further: Iterable<string>): Record<string, { $ref: string }> {
  const names = [...Object.keys(COMMON_HEADERS), "X-Gateway-Request-Id", ...new Set(further)];
  return Object.fromEntries(names.map((name) => [name, reference("headers", name)]));
}
