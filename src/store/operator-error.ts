/** What kind of mistake it is: the management API answers 400, 403, 404, 409, 412 and 503. */
export type OperatorErrorCode = "invalid" | "forbidden" | "not_found" | "conflict" | "stale" | "unavailable";

/** A mistake of an operator; the message says how to mend it. */
export class OperatorError extends Error {
  readonly code: OperatorErrorCode;
  /** The parameter that is wrong, where it is one. */
  readonly path: string | undefined;

  constructor(message: string, code: OperatorErrorCode = "invalid", path?: string) {
    super(message);
    this.code = code;
    this.path = path;
  }
}

export const noAccount = (accountId: string): OperatorError =>
  new OperatorError(`there is no account ${accountId}`, "not_found");
