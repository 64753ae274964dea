import { STATUS_CODES } from "node:http";
import { type Problem as FieldProblem, GatewayError } from "../../domain/errors.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { SignInRefusal } from "../../telemetry/metrics/requests.ts";
import { withoutSecrets } from "../refusal-log.ts";

/** All refusals by `code`: the status, and when it is answered. */
export const PROBLEMS = {
  invalid: { status: 400, when: "A parameter, header or body breaks a rule; `errors` names each." },
  unauthorized: { status: 401, when: "There is no token, or it is unknown, revoked or expired." },
  forbidden: { status: 403, when: "The token lacks the scope, or may not use this account." },
  not_found: { status: 404, when: "There is no such path or object, also under another account's path." },
  method_not_allowed: { status: 405, when: "The path has other methods; `Allow` names them." },
  conflict: {
    status: 409,
    when: "It is there already, was done with other values, or would go below what is held.",
  },
  account_closed: { status: 409, when: "The account is closed. Open it first." },
  too_many_webhooks: { status: 409, when: "The account has as many endpoints as it may. Delete one first." },
  webhook_disabled: { status: 409, when: "The endpoint is disabled. Enable it first." },
  webhooks_off: {
    status: 409,
    when: "The gateway has no `WEBHOOK_SECRET_KEY`. Set it to at least 32 random characters, and start it again.",
  },
  stale: {
    status: 412,
    when: "The object was changed since it was read; `If-Match` names an earlier state.",
  },
  too_large: { status: 413, when: "The body exceeds 64 KiB." },
  unsupported_media_type: { status: 415, when: "The body is not `application/json`, or is encoded." },
  wrong_host: { status: 421, when: "`Host` is neither an IP address nor a name in `admin.hosts`." },
  too_many_wrong_tokens: { status: 429, when: "Wait for `Retry-After` seconds." },
  too_many_writes: {
    status: 429,
    when: "The token, with those made with it, has written as much as it may. Wait for `Retry-After` seconds.",
  },
  internal: { status: 500, when: "A fault of the gateway; its log says more under the `request_id`." },
  overloaded: { status: 503, when: "Too many calls at a time. Repeat it after `Retry-After` seconds." },
  unavailable: { status: 503, when: "Redis or the archive cannot be used. Repeat it later." },
} as const;
export type ProblemCode = keyof typeof PROBLEMS;

/** The header that names the creation of a key, as `errors` names it. */
export const IDEMPOTENCY_HEADER = "Idempotency-Key";

/** Why a call is refused; `detail` is for the caller. */
export class Problem extends Error {
  readonly code: ProblemCode;
  readonly detail: string;
  readonly errors: readonly FieldProblem[];
  readonly headers: Readonly<Record<string, string>>;
  /** Why it was not even known who calls. */
  readonly signIn: SignInRefusal | undefined;

  constructor(
    code: ProblemCode,
    detail: string,
    more: {
      errors?: readonly FieldProblem[];
      headers?: Readonly<Record<string, string>>;
      signIn?: SignInRefusal;
    } = {},
  ) {
    super(detail);
    this.code = code;
    this.detail = detail;
    this.errors = more.errors ?? [];
    this.headers = more.headers ?? {};
    this.signIn = more.signIn;
  }
}

/**
 * Puts anything that was thrown into a problem; undefined for a fault of our own.
 * @param method of the call: the parameters of a GET are in its query, all others in the body
 */
export function problemOf(error: unknown, method: string | undefined): Problem | undefined {
  if (error instanceof Problem) return error;
  if (error instanceof OperatorError) {
    const { code, path, message } = error;
    const errors = path === undefined ? [] : [{ path: placeOf(path, method), message }];
    return new Problem(code, message, { errors });
  }
  if (error instanceof GatewayError && error.refusal.name === "store_unavailable") {
    return new Problem("unavailable", `Redis cannot be used: ${error.message}`, { headers: RETRY });
  }
  return undefined;
}

/** A place as `errors` names it: a header, a query parameter, or a JSON pointer into the body. */
function placeOf(path: string, method: string | undefined): string {
  if (path === IDEMPOTENCY_HEADER || path === "") return path;
  return method === "GET" || method === "HEAD" ? `?${path}` : `/${path}`;
}

const RETRY = { "Retry-After": "5" };

/** The body of a refusal. RFC 9457. */
export function problemBody({ code, detail, errors }: Problem, requestId: string): object {
  const { status } = PROBLEMS[code];
  return {
    type: "about:blank",
    title: STATUS_CODES[status],
    status,
    detail: withoutSecrets(detail),
    code,
    request_id: requestId,
    ...(errors.length > 0 && {
      errors: errors.map(({ path, message }) => ({ path, message: withoutSecrets(message) })),
    }),
  };
}
