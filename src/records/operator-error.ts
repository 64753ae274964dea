/** Mistakes that have a code of their own in the management API, by what kind of mistake each is. */
const KINDS = {
  reference_mismatch: "conflict",
  reference_used: "conflict",
  insufficient_balance: "conflict",
  balance_too_large: "conflict",
  nothing_left: "conflict",
  already_refunded: "conflict",
  charged_again: "conflict",
  not_charged: "conflict",
  task_running: "conflict",
  task_changing: "conflict",
  transaction_gone: "conflict",
  account_exists: "conflict",
  account_closed: "conflict",
  key_exists: "conflict",
  key_revoked: "conflict",
  key_rotated: "conflict",
  key_expired: "conflict",
  too_many_keys: "conflict",
  too_many_tokens: "conflict",
  idempotency_mismatch: "conflict",
  too_many_webhooks: "conflict",
  webhook_disabled: "conflict",
  webhooks_off: "conflict",
  too_many_deliveries: "conflict",
  grant_not_found: "not_found",
  unknown_package: "invalid",
  unknown_tier: "invalid",
  not_indexed: "invalid",
  unknown_endpoint: "invalid",
  invalid_money: "invalid",
  invalid_month: "invalid",
} as const;
export type OperatorProblem = keyof typeof KINDS;

type OperatorErrorCode = "invalid" | "forbidden" | "not_found" | "conflict" | "stale" | "unavailable";
type Unspecific = Exclude<OperatorErrorCode, "conflict">;

const isSpecific = (code: string): code is OperatorProblem => Object.hasOwn(KINDS, code);

/** A mistake of an operator; the message says how to mend it, as the management API and the command line both can. */
export class OperatorError extends Error {
  readonly code: OperatorErrorCode;
  readonly problem: OperatorProblem | Unspecific;
  /** The parameter that is wrong, where it is one. */
  readonly path: string | undefined;
  /** Which command mends it: said by the command line only. */
  readonly command: string | undefined;

  constructor(
    message: string,
    problem: OperatorProblem | Unspecific = "invalid",
    path?: string,
    command?: string,
  ) {
    super(message);
    this.code = isSpecific(problem) ? KINDS[problem] : problem;
    this.problem = problem;
    this.path = path;
    this.command = command;
  }
}

export function inCommandWords(error: unknown): string {
  if (error instanceof OperatorError && error.command !== undefined)
    return `${error.message}; ${error.command}`;
  return error instanceof Error ? error.message : String(error);
}

/** @param what such as `key key_4x7` */
export const changedMeanwhile = (what: string): OperatorError =>
  new OperatorError(`${what} was changed meanwhile; read it again, then change it`, "stale");

export const noAccount = (accountId: string): OperatorError =>
  new OperatorError(`there is no account ${accountId}`, "not_found");

export const tooLarge = (path?: string): OperatorError =>
  new OperatorError(
    "the balance would be too large to be exact; nothing is changed",
    "balance_too_large",
    path,
  );

export const accountClosed = (accountId: string): OperatorError =>
  new OperatorError(`account ${accountId} is closed; nothing is changed`, "account_closed");
