/** What kind of mistake it is: the management API answers 400, 403, 404, 409, 412 and 503. */
type OperatorErrorCode =
  | "invalid"
  | "forbidden"
  | "not_found"
  | "conflict"
  | "stale"
  | "unavailable"
  | "account_closed"
  | "too_many_webhooks"
  | "webhook_disabled"
  | "webhooks_off";

/** A mistake of an operator; the message says how to mend it, as the management API and the command line both can. */
export class OperatorError extends Error {
  readonly code: OperatorErrorCode;
  /** The parameter that is wrong, where it is one. */
  readonly path: string | undefined;
  /** Which command mends it: said by the command line only. */
  readonly command: string | undefined;

  constructor(message: string, code: OperatorErrorCode = "invalid", path?: string, command?: string) {
    super(message);
    this.code = code;
    this.path = path;
    this.command = command;
  }
}

/** An error as the command line says it. */
export function inCommandWords(error: unknown): string {
  if (error instanceof OperatorError && error.command !== undefined)
    return `${error.message}; ${error.command}`;
  return error instanceof Error ? error.message : String(error);
}

export const noAccount = (accountId: string): OperatorError =>
  new OperatorError(`there is no account ${accountId}`, "not_found");
