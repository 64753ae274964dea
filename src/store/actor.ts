/** Who changes something, for the audit and the ledger. */
export interface Actor {
  /** `<token id> <label>`, `admin_token`, `console` or `cli <name>`. */
  by: string;
  /** The `X-Request-Id` of the call; empty for the command line. */
  requestId: string;
}
