import { type Problem as FieldProblem, GatewayError } from "../../domain/errors.ts";
import { OperatorError, type OperatorProblem } from "../../records/operator-error.ts";
import type { SignInRefusal } from "../../telemetry/metrics/requests.ts";
import { withoutSecrets } from "../refusal-log.ts";

/** Not imported: decision 0040. */
const { STATUS_CODES } = process.getBuiltinModule("node:http");

/** The reason phrase of a status. */
export const titleOf = (status: number): string | undefined => STATUS_CODES[status];

/** All refusals by `code`: the status, and when it is answered. */
export const PROBLEMS = {
  invalid: { status: 400, when: "A parameter, header or body breaks a rule; `errors` names each." },
  unknown_package: {
    status: 400,
    when: "The configuration has no such package. `GET /packages` lists them.",
  },
  unknown_endpoint: { status: 400, when: "There is no such generation endpoint." },
  invalid_generation: {
    status: 400,
    when: "A gateway would refuse this body of a generation; `errors` says why.",
  },
  invalid_money: {
    status: 400,
    when: "An amount of money is a decimal text such as `9.90`, not negative, in a currency of ISO 4217, and of a purchase only.",
  },
  invalid_month: { status: 400, when: "There is no such month. It is written as `2026-10`." },
  unauthorized: { status: 401, when: "There is no token, or it is unknown, revoked or expired." },
  forbidden: { status: 403, when: "The token lacks the scope, or may not use this account." },
  not_found: { status: 404, when: "There is no such path or object, also under another account's path." },
  method_not_allowed: { status: 405, when: "The path has other methods; `Allow` names them." },
  grant_not_found: {
    status: 404,
    when: "`of` is the reference of no grant of this account. List its transactions.",
  },
  reference_mismatch: {
    status: 409,
    when: "This reference was used for the same with other values, such as another amount. Nothing is changed: find it among the transactions, and use another reference if you mean another one.",
  },
  reference_used: {
    status: 409,
    when: "This reference stands for something else, such as an adjustment. Use another one.",
  },
  insufficient_balance: {
    status: 409,
    when: "The account can spend less than would be taken. What is held is not taken: take less, or wait until its tasks have ended.",
  },
  balance_too_large: { status: 409, when: "The balance would exceed 2^53 - 1 credits. Grant less." },
  nothing_left: {
    status: 409,
    when: "Nothing is left of the grant: its credits were reversed, are spent or are held. Repeat it later with the same reference if some are held.",
  },
  already_refunded: { status: 409, when: "The charge was given back before. There is nothing to do." },
  charged_again: {
    status: 409,
    when: "The charge was given back, and taken again since the task completed late. A request is refunded once: grant credits as `goodwill`.",
  },
  not_charged: { status: 409, when: "The request was not charged, so there is nothing to refund." },
  task_running: { status: 409, when: "The task has not ended. Release it, which refunds it, or wait." },
  task_changing: {
    status: 409,
    when: "The task changes at this moment. Read it again, then repeat the call.",
  },
  transaction_gone: {
    status: 409,
    when: "An earlier call with this reference has made it, and its transaction is too old to be shown without an archive. There is nothing to do.",
  },
  account_exists: {
    status: 409,
    when: "There is an account of this id. Choose another id, or use that account.",
  },
  account_closed: {
    status: 409,
    when:
      "A closed account gets no credits, keys or endpoints, and its endpoints are only listed and deleted. Reopen it first: `PATCH` with " +
      "`status`.",
  },
  key_exists: { status: 409, when: "This key is known already." },
  key_revoked: { status: 409, when: "The key is revoked for good. Create a new one." },
  key_rotated: { status: 409, when: "The key was rotated before; `detail` names the key that replaces it." },
  key_expired: { status: 409, when: "The key has expired. Create a new one." },
  too_many_keys: { status: 409, when: "The account has as many keys as `admin.keys_per_account` allows." },
  too_many_tokens: { status: 409, when: "There are too many tokens. Revoke some of them." },
  idempotency_mismatch: {
    status: 409,
    when: "This `Idempotency-Key` belongs to a call with other values. Use another one.",
  },
  too_many_webhooks: { status: 409, when: "The account has as many endpoints as it may. Delete one first." },
  webhook_disabled: { status: 409, when: "The endpoint is disabled. Enable it first." },
  too_many_deliveries: {
    status: 409,
    when: "As many deliveries of the account wait as may. Repeat it once some were made.",
  },
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
} as const satisfies Record<OperatorProblem, unknown> & Record<string, { status: number; when: string }>;
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
    const { problem, path, message } = error;
    const errors = path === undefined ? [] : [{ path: placeOf(path, method), message }];
    return new Problem(problem, message, { errors });
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
    title: titleOf(status),
    status,
    detail: withoutSecrets(detail),
    code,
    request_id: requestId,
    ...(errors.length > 0 && {
      errors: errors.map(({ path, message }) => ({
        path: withoutSecrets(path),
        message: withoutSecrets(message),
      })),
    }),
  };
}
