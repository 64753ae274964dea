import { refusal } from "../domain/envelope.ts";
import { ERROR_NAMES, type ErrorName, type Refusal, refuse } from "../domain/errors.ts";
import { FILE_BYTES_MAX, HEADERS_BYTES_MAX, JSON_BODY_BYTES_MAX, LIMITS } from "../domain/limits.ts";

/** Operations of one kind can meet the same errors. */
export type Kind = "generation" | "task" | "upload" | "credits";
export const KINDS: readonly Kind[] = ["generation", "task", "upload", "credits"];

export interface ErrorCase {
  name: ErrorName;
  /** Key of the response it belongs to: an HTTP status, or `default`. */
  response: string;
  code: number;
  /** When it happens, and what to do. */
  words: string;
  /** A whole body, with the request id of the example. */
  example: unknown;
  /** Names of the headers that this answer has beside those of every answer. */
  headers: readonly string[];
}

const EXAMPLE_REQUEST_ID = "req_mi8w3k1q5f0c2a9d000001";

/** When each happens and what a customer does about it, mostly; `docs/errors.md` says it at length. */
const WORDS: Record<ErrorName, string> = {
  missing_api_key: "There is no `Authorization: Bearer <key>`, or it is malformed. Send the key.",
  invalid_api_key:
    "The key is unknown, revoked or expired, or may not be used from this address; the answer does not tell which. Check the key.",
  too_many_unknown_keys:
    "Unknown keys came from this address too often, by default 100 in a minute. Mend the key, and wait.",
  invalid_request:
    "The body, a parameter, a header or the HTTP itself breaks a rule: `error` says which, `details` lists all. Mend it first.",
  insufficient_credits:
    "The price exceeds what can be spent; `error` names both. Recharge, or choose what costs less.",
  account_suspended:
    "The account is suspended: polls and credits still work; or it is closed: nothing does. Ask the operator.",
  endpoint_not_allowed:
    "The key may be used for some endpoints only, and this is none of them; `error` names those that are. Use one of them, or another key.",
  task_not_found:
    "There is no such task, it is another account's, or it ended long ago (by default 7 days). Stop polling it.",
  path_not_found: "There is nothing at this path. Paths are compared as they are sent, letter by letter.",
  method_not_allowed: "The path has another method, which `Allow` names.",
  request_timeout: "Headers, body or file came too slowly. Nothing was begun: send it again.",
  idempotency_in_progress:
    "The first request with this `Idempotency-Key` has no outcome yet, or the generator gave it no clear answer; then the " +
    "text says so, and until when. Wait for `Retry-After`, and send the same again.",
  payload_too_large: `The JSON is larger than ${JSON_BODY_BYTES_MAX} bytes (256 KiB). Send less.`,
  unsupported_media_type:
    "`Content-Type` is not `application/json` (in UTF-8, if it names a charset), or there is a `Content-Encoding`.",
  expectation_failed: "`Expect` asks for something other than `100-continue`. Leave it out.",
  idempotency_mismatch:
    "This `Idempotency-Key` belongs to a different request. Take a new one for a new request.",
  upgrade_refused: "A WebSocket was asked for. Send plain HTTP/1.1.",
  headers_too_large: `Request line and headers are larger than ${HEADERS_BYTES_MAX} bytes (16 KiB) together. Send less.`,
  rate_limited: "The key's requests of the last 60 seconds are used up. Wait for `Retry-After`.",
  concurrency_limited:
    "As many tasks as the key may have are running. Wait for one to end. If all of them are requests that got no answer, " +
    "`Retry-After` says when the first of them is cleared up.",
  daily_limited:
    "The key's requests of the day are used up; midnight UTC starts a new one. Do not retry before.",
  upstream_rate_limited:
    "The generator is limiting the gateway. Wait for `Retry-After`, then retry with exponential backoff.",
  spend_capped:
    "The key has a cap on the credits of a month (UTC), and this request would exceed it; `error` has the numbers. Ask whoever set it.",
  slow_down:
    "Polls, credits, uploads and refused requests of the key, those for want of credits included, came too fast: by default above 100 a second. Wait for `Retry-After`.",
  internal: "A fault of the gateway. Retry once, then report the `request_id`.",
  upstream_refused:
    "The generator refused this request; code and text are its own. Read them before you send it again.",
  upstream_refused_gateway:
    "The generator refused the gateway, not you: key and credits are not at fault, nothing is charged, the operator is told.",
  upstream_failed:
    "The generator could not be reached, or is down for a moment. Nothing is charged. Wait for `Retry-After`, then retry.",
  upstream_unclear:
    "The connection broke, or the answer made no sense: a task may run. Retry with the same `Idempotency-Key` only.",
  upstream_timeout:
    "The generator gave no answer in time: a task may run. Retry with the same `Idempotency-Key` only.",
  overloaded:
    "More requests are in progress than the gateway takes at once. Nothing was begun. Wait for `Retry-After`, then retry.",
  maintenance:
    "The operator works on the service; polls and credits go on. Nothing was begun. Wait for `Retry-After`, then retry.",
  outcomes_unknown:
    "So many requests of the account got no clear answer from the generator that no further one is admitted until some of them are cleared up. Nothing was begun. Wait for `Retry-After`, then retry.",
  store_unavailable:
    "The gateway cannot reach its store, and admits nothing without it. Wait for `Retry-After`, then retry.",
  version_unsupported: "The request is neither HTTP/1.1 nor HTTP/1.0.",
};

type Extra = Partial<Omit<Refusal, "name">>;

/** An example of each refusal: the fields that it adds to its row of the table. Tests compare the gateway's own answers with these. */
const EXTRAS: Partial<Record<ErrorName, Extra>> = {
  too_many_unknown_keys: { retryAfterSeconds: 42 },
  insufficient_credits: {
    text: "Insufficient credits: this request costs 10, the balance is 3",
  },
  spend_capped: {
    text: "Monthly credits of this API key exceeded: this request costs 10, 10 of 15 are used",
  },
  endpoint_not_allowed: {
    text: "This API key may not use this endpoint; it may use gen2/text-to-video",
  },
  method_not_allowed: { allow: "POST" },
  idempotency_in_progress: { retryAfterSeconds: 10 },
  rate_limited: { retryAfterSeconds: 7 },
  concurrency_limited: { retryAfterSeconds: 10 },
  daily_limited: { retryAfterSeconds: 30_251 },
  upstream_rate_limited: { retryAfterSeconds: 15 },
  slow_down: { retryAfterSeconds: 1 },
  overloaded: { retryAfterSeconds: 1 },
  maintenance: { retryAfterSeconds: 120 },
  outcomes_unknown: { retryAfterSeconds: 95 },
  store_unavailable: { retryAfterSeconds: 2 },
};

const invalid = (path: string, message: string): Extra => ({
  text: `Invalid request: ${message}`,
  details: [{ path, message }],
});
const WAIT = { retryAfterSeconds: 5 };

const NO_BODY = {
  ...invalid("", "a GET has no body"),
  words: "The HTTP itself breaks a rule, such as a GET with a body: `error` says which. Mend it first.",
};

/** Where it is said in other words to a kind of operation, by the gateway or here, or waits otherwise. */
const EXTRAS_OF: Record<Kind, Partial<Record<ErrorName, Extra & { words?: string }>>> = {
  generation: {
    invalid_request: {
      text: "Invalid request: promt is not a known parameter; did you mean prompt?",
      details: [
        { path: "/promt", message: "promt is not a known parameter; did you mean prompt?" },
        { path: "/prompt", message: "prompt is required" },
      ],
    },
    payload_too_large: { text: "Request body too large: at most 262144 bytes" },
    unsupported_media_type: {
      text: "Unsupported media type: send Content-Type: application/json (UTF-8)",
    },
    upstream_refused_gateway: {
      text: "The video generation service refused the gateway; nothing is charged",
      shouldRetry: false,
    },
    upstream_failed: { retryAfterSeconds: 10 },
    upstream_unclear: { shouldRetry: false },
    upstream_timeout: { shouldRetry: false },
  },
  task: {
    invalid_request: NO_BODY,
    upstream_refused_gateway: WAIT,
    upstream_failed: {
      ...WAIT,
      text: "The video generation service could not be asked for this task",
      words: "The generator could not be asked. The task goes on regardless: poll again after `Retry-After`.",
    },
    upstream_timeout: {
      ...WAIT,
      text: "The video generation service gave no answer in time",
      words:
        "The generator gave no answer in time. The task goes on regardless: poll again after `Retry-After`.",
    },
  },
  upload: {
    invalid_request: invalid(
      "/image",
      "image is not a known parameter; the form must have one part only, the image in field file",
    ),
    payload_too_large: {
      text: "Request body too large: file may have at most 10485760 bytes",
      details: [{ path: "/file", message: "file may have at most 10485760 bytes" }],
      words:
        `The file is larger than ${FILE_BYTES_MAX} bytes (10 MiB), or the form has more than 64 KiB beside it. Send a ` +
        "smaller one.",
    },
    unsupported_media_type: {
      text: "Unsupported media type: file must be a JPEG, PNG, WebP or GIF image",
      words:
        "The body is no multipart form, there is a `Content-Encoding`, or the file is not a JPEG, PNG, WebP or GIF by its " +
        "first bytes, or not the one that it declares.",
    },
    upstream_refused_gateway: { shouldRetry: false },
    upstream_failed: {
      ...WAIT,
      text: "The video generation service did not take the upload",
      words: "The generator did not take the upload. Send it again after `Retry-After`.",
    },
    upstream_timeout: {
      ...WAIT,
      text: "The video generation service did not take the upload in time",
      words: "The generator did not take the upload in time. Send it again after `Retry-After`.",
    },
  },
  credits: {
    invalid_request: {
      ...NO_BODY,
      words:
        "The HTTP itself breaks a rule, such as a GET with a body, or the query of `/api/v1/usage` does: `error` says which. Mend it first.",
    },
  },
};

const UPSTREAM_SAYS: Extra = { code: 1001, text: "The prompt was rejected" };

const OF_UPSTREAM: readonly ErrorName[] = [
  "upstream_rate_limited",
  "upstream_refused",
  "upstream_refused_gateway",
  "upstream_failed",
  "upstream_timeout",
];
const OF_BODY: readonly ErrorName[] = ["payload_too_large", "unsupported_media_type"];
const OF_ADMISSION: readonly ErrorName[] = [
  ...LIMITS.map(({ refusal }) => refusal),
  "insufficient_credits",
  "idempotency_in_progress",
  "idempotency_mismatch",
  "outcomes_unknown",
  "upstream_unclear",
];

/** Errors that only some kinds of operation can meet; all others can be met everywhere. */
const PARTICULAR = new Map<ErrorName, readonly Kind[]>([
  ["endpoint_not_allowed", ["generation"]],
  ["task_not_found", ["task"]],
  ...OF_ADMISSION.map((name) => [name, ["generation"]] as const),
  ["maintenance", ["generation", "upload"]],
  ...OF_BODY.map((name) => [name, ["generation", "upload"]] as const),
  ...OF_UPSTREAM.map((name) => [name, ["generation", "task", "upload"]] as const),
]);

/** Every error that an operation of this kind can answer, by its code. */
export function errorCases(kind: Kind): ErrorCase[] {
  const names = ERROR_NAMES.filter((name) => PARTICULAR.get(name)?.includes(kind) ?? true);
  const cases = names.flatMap((name) => {
    const { words = WORDS[name], ...extra } = { ...EXTRAS[name], ...EXTRAS_OF[kind][name] };
    if (name !== "upstream_refused") return [errorCase(name, words, extra)];
    return [errorCase(name, words, UPSTREAM_SAYS, "default"), errorCase(name, words, UPSTREAM_SAYS)];
  });
  return cases.sort((a, b) => a.code - b.code);
}

function errorCase(name: ErrorName, words: string, extra: Extra, response?: string): ErrorCase {
  const refused = refuse(name, extra);
  const { status, body, headers = [] } = refusal(refused, EXAMPLE_REQUEST_ID);
  return {
    name,
    response: response ?? String(status),
    code: refused.code,
    words,
    example: JSON.parse(body),
    // Connection speaks of one hop, and is no part of the answer.
    headers: headers.filter((header, at) => at % 2 === 0 && header !== "Connection"),
  };
}
