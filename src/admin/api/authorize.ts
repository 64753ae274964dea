import type { IncomingMessage } from "node:http";
import { SCOPES, type Scope } from "../../domain/scopes.ts";
import type { TokenRecord } from "../../operations/access/tokens.ts";
import type { SignInRefusal } from "../../telemetry/metrics/requests.ts";
import type { Access, TokenAttempt } from "../access.ts";
import { Problem } from "./problems.ts";

/** Who calls the API, and what they may do. */
export interface Grantee {
  /** Undefined for `ADMIN_TOKEN`. */
  tokenId: string | undefined;
  /** The first token of its family: rates and volumes are those of all together. Undefined for `ADMIN_TOKEN`, which has none. */
  root: string | undefined;
  label: string;
  scopes: readonly Scope[];
  /** The only accounts that it may use; undefined: all. */
  accounts: readonly string[] | undefined;
  /** Unix ms; undefined: for good. */
  expiresAtMs: number | undefined;
  by: string;
}

/** Set by the console, to tell its use of `ADMIN_TOKEN` from a backend's. */
const CLIENT_HEADER = "x-tollgate-client";

/** Who a request is from. @throws Problem for a request of another site, and without a token that is good */
export async function authorize(
  req: IncomingMessage,
  access: Access,
  findToken: (token: string) => Promise<TokenRecord | undefined>,
): Promise<Grantee> {
  const denied = access.checkSource(req);
  if (denied) {
    const code = denied.status === 421 ? "wrong_host" : "forbidden";
    throw new Problem(code, denied.error, { signIn: denied.reason });
  }
  const attempt = access.attempt(req);
  if (attempt.token === undefined) {
    throw unauthorized("this needs a token: Authorization: Bearer tgm_...", "no_token");
  }
  // First of all: others behind the same address may have tried wrong ones.
  const grantee = attempt.isAdmin ? adminOf(req) : await granteeOf(attempt, findToken);
  if (grantee) {
    attempt.wasRight();
    return grantee;
  }
  const waitSeconds = attempt.wasWrong();
  if (waitSeconds === 0) throw unauthorized("this token is unknown, revoked or expired", "wrong_token");
  throw new Problem("too_many_wrong_tokens", "too many wrong tokens; wait a minute", {
    headers: { "Retry-After": String(waitSeconds) },
    signIn: "too_many_wrong_tokens",
  });
}

const unauthorized = (detail: string, signIn: SignInRefusal): Problem =>
  new Problem("unauthorized", detail, { headers: { "WWW-Authenticate": "Bearer" }, signIn });

const adminOf = (req: IncomingMessage): Grantee => {
  const by = req.headers[CLIENT_HEADER] === "console" ? "console" : "admin_token";
  return {
    tokenId: undefined,
    root: undefined,
    label: "ADMIN_TOKEN",
    scopes: SCOPES,
    accounts: undefined,
    expiresAtMs: undefined,
    by,
  };
};

async function granteeOf(
  { token, isApiToken }: TokenAttempt,
  findToken: (token: string) => Promise<TokenRecord | undefined>,
): Promise<Grantee | undefined> {
  if (token === undefined || !isApiToken) return undefined;
  const record = await findToken(token);
  if (!record) return undefined;
  const { tokenId, root, label, scopes, accounts, expiresAtMs } = record;
  return { tokenId, root, label, scopes, accounts, expiresAtMs, by: `${tokenId} ${label}` };
}

/** @throws Problem for a token that lacks the scope */
export function requireScope({ scopes }: Grantee, scope: Scope | "any"): void {
  if (scope === "any" || scopes.includes(scope)) return;
  throw new Problem("forbidden", `this token lacks the scope ${scope}`);
}

/** @throws Problem for a token that may use some accounts only, where an answer is about all of them */
export function requireAllAccounts({ accounts }: Grantee): void {
  if (accounts) throw new Problem("forbidden", "this token may use some accounts only");
}

/** @throws Problem for an account that the token may not use, whether or not it exists */
export function requireOwnAccount({ accounts }: Grantee, accountId: string): void {
  if (accounts === undefined || accounts.includes(accountId)) return;
  throw new Problem("forbidden", "this token may not use this account");
}
