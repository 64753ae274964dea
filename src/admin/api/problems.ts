import { type Problem as FieldProblem, GatewayError } from "../../domain/errors.ts";
import { withoutSecrets } from "../../domain/operator-texts.ts";
import { OperatorError, type OperatorProblem } from "../../records/operator-error.ts";
import type { SignInRefusal } from "../../telemetry/metrics/requests.ts";

/** Not imported: decision 0040. */
const { STATUS_CODES } = process.getBuiltinModule("node:http");

export const titleOf = (status: number): string | undefined => STATUS_CODES[status];

const REFUSALS = {
  400: {
    invalid: "A parameter, header or body breaks a rule, or several of them do; `errors` names each.",
    unknown_package: "The configuration has no such package. `GET /packages` lists them.",
    unknown_tier: "The configuration has no such tier, or none for new keys. `GET /tiers` lists them.",
    unknown_endpoint:
      "There is no such generation endpoint. Name one as `gen2/text-to-video`, or by its path.",
    invalid_generation: "A gateway would refuse this body of a generation; `errors` says why.",
    invalid_money:
      "An amount of money is a decimal text such as `9.90`, not negative, in a currency of ISO 4217, and of a purchase only.",
    invalid_month: "There is no such month. It is written as `2026-10`.",
    invalid_time:
      "A day or a time is not in the calendar, has no zone, lies in the past where only a later one makes sense, or `from` comes after `to`. Write a time as `2026-10-31T12:00:00Z`.",
    invalid_multiplier:
      "A `price_multiplier` is a number from 0.01 to 10 with two decimals at most, such as 0.8 for 80 percent of the list price.",
    invalid_retry_after: "A `retry_after` is a whole number of seconds from 1 to 86400, which is a day.",
    invalid_addresses:
      "One of `allowed_addresses` is no address and no CIDR range, or does not begin its range; `detail` says what to write.",
    invalid_cursor: "The cursor is of another list or of other filters. Begin without one.",
    not_indexed:
      "Accounts are not found by this name of their metadata: `accounts.indexed_metadata` lacks it.",
  },
  401: { unauthorized: "There is no token, or it is unknown, revoked or expired." },
  403: { forbidden: "The token lacks the scope, or may not use this account." },
  404: {
    not_found: "There is no such path or object, also under another account's path.",
    grant_not_found: "`of` is the reference of no grant of this account. List its transactions.",
  },
  405: { method_not_allowed: "The path has other methods; `Allow` names them." },
  409: {
    reference_mismatch:
      "This reference was used for the same with other values, such as another amount. Nothing is changed: find it among the transactions, and use another reference if you mean another one.",
    reference_used: "This reference stands for something else, such as an adjustment. Use another one.",
    insufficient_balance:
      "The account can spend less than would be taken. What is held is not taken: take less, or wait until its tasks have ended.",
    balance_too_large: "The balance would exceed 2^53 - 1 credits. Grant less.",
    nothing_left:
      "Nothing is left of the grant: its credits were reversed, are spent or are held. Repeat it later with the same reference if some are held.",
    already_refunded: "The charge was given back before. There is nothing to do.",
    charged_again:
      "The charge was given back, and taken again since the task completed late. A request is refunded once: grant credits as `goodwill`.",
    not_charged: "The request was not charged, so there is nothing to refund.",
    task_running: "The task has not ended. Release it, which refunds it, or wait.",
    task_changing: "The task changes at this moment. Read it again, then repeat the call.",
    transaction_gone:
      "An earlier call with this reference has made it, and its transaction is too old to be shown without an archive. There is nothing to do.",
    account_exists: "There is an account of this id. Choose another id, or use that account.",
    account_closed:
      "A closed account gets no credits, keys or endpoints, its endpoints are only listed and deleted, and nothing is delivered again. Reopen it first: `PATCH` with `status`.",
    key_exists: "This key is known already.",
    key_revoked: "The key is revoked for good. Create a new one.",
    key_rotated: "The key was rotated before; `detail` names the key that replaces it.",
    key_expired: "The key has expired. Create a new one.",
    too_many_keys: "The account has as many keys as `admin.keys_per_account` allows.",
    too_many_tokens: "There are too many tokens. Revoke some of them.",
    idempotency_mismatch: "This `Idempotency-Key` belongs to a call with other values. Use another one.",
    too_many_webhooks: "The account has as many endpoints as it may. Delete one first.",
    webhook_disabled: "The endpoint is disabled. Enable it first.",
    too_many_deliveries: "As many deliveries of the account wait as may. Repeat it once some were made.",
    webhooks_off:
      "The gateway has no `WEBHOOK_SECRET_KEY`. Set it to at least 32 random characters, and start it again.",
  },
  412: { stale: "The object was changed since it was read; `If-Match` names an earlier state." },
  413: { too_large: "The body exceeds 64 KiB." },
  415: { unsupported_media_type: "The body is not `application/json`, or is encoded." },
  421: { wrong_host: "`Host` is neither an IP address nor a name in `admin.hosts`." },
  429: {
    too_many_wrong_tokens: "Wait for `Retry-After` seconds.",
    too_many_writes:
      "The token, with those made with it, has written as much as it may. Wait for `Retry-After` seconds.",
  },
  500: { internal: "A fault of the gateway; its log says more under the `request_id`." },
  503: {
    overloaded: "Too many calls at a time. Repeat it after `Retry-After` seconds.",
    unavailable: "Redis or the archive cannot be used. Repeat it later.",
  },
} as const;
type Refusals = typeof REFUSALS;
export type ProblemCode = { [Status in keyof Refusals]: keyof Refusals[Status] }[keyof Refusals];

export const PROBLEMS = Object.fromEntries(
  Object.entries(REFUSALS).flatMap(([status, codes]) =>
    Object.entries(codes).map(([code, when]) => [code, { status: Number(status), when }]),
  ),
) as Record<ProblemCode, { status: number; when: string }> satisfies Record<OperatorProblem, unknown>;

/** Codes of `invalid` fields and parameters, by their names. */
const CODES_OF_FIELDS: Readonly<Record<string, ProblemCode>> = {
  ...{ from: "invalid_time", to: "invalid_time", at: "invalid_time", expires_at: "invalid_time" },
  ...{ month: "invalid_month", amount_paid: "invalid_money", currency: "invalid_money" },
  ...{ price_multiplier: "invalid_multiplier", retry_after: "invalid_retry_after" },
  ...{ allowed_addresses: "invalid_addresses", cursor: "invalid_cursor" },
};

/** The field or parameter of a place such as `/prices/0/charged` or `?from`. */
export const fieldOf = (path: string): string => /^[/?]?([^/]*)/.exec(path)?.[1] ?? "";

export const isTime = (field: string): boolean => CODES_OF_FIELDS[field] === "invalid_time";

/** That of the fields if it is the same for all of them. */
export function invalidCode(errors: readonly FieldProblem[]): ProblemCode {
  const codes = new Set(errors.map(({ path }) => CODES_OF_FIELDS[fieldOf(path)] ?? "invalid"));
  const [code = "invalid", ...others] = codes;
  return others.length === 0 ? code : "invalid";
}

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

/** Undefined for a fault of our own. @param method the parameters of a GET are in its query, all others in the body */
export function problemOf(error: unknown, method: string | undefined): Problem | undefined {
  if (error instanceof Problem) return error;
  if (error instanceof OperatorError) {
    const { problem, path, message } = error;
    const errors = path === undefined ? [] : [{ path: placeOf(path, method), message }];
    return new Problem(problem === "invalid" ? invalidCode(errors) : problem, message, { errors });
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

/** RFC 9457. */
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
