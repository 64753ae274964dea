import type { IncomingMessage } from "node:http";
import { SCOPES, type Scope } from "../../domain/scopes.ts";
import type { TokenRecord } from "../../store/tokens.ts";
import type { Access } from "../access.ts";
import { Problem } from "./problems.ts";

/** Who calls the API, and what they may do. */
export interface Grantee {
  /** Undefined for `ADMIN_TOKEN`. */
  tokenId: string | undefined;
  label: string;
  scopes: readonly Scope[];
  /** The only accounts that it may use; undefined: all. */
  accounts: readonly string[] | undefined;
  /** Unix ms; undefined: for good. */
  expiresAtMs: number | undefined;
  /** How audit and ledger name them. */
  by: string;
}

/** What the console sends, so that what is done with `ADMIN_TOKEN` there can be told from a backend's calls. */
const CLIENT_HEADER = "x-tollgate-client";

/**
 * Who a request is from. Wrong tokens are counted per address and in total (access.ts).
 * @param findToken a token's record; undefined for an unknown one
 * @throws Problem for a request of another site, and without a token that is good
 */
export async function authorize(
  req: IncomingMessage,
  access: Access,
  findToken: (token: string) => Promise<TokenRecord | undefined>,
): Promise<Grantee> {
  const denied = access.checkSource(req);
  if (denied) throw new Problem(denied.status === 421 ? "wrong_host" : "forbidden", denied.error);
  const attempt = access.attempt(req);
  if (attempt.waitSeconds > 0) {
    throw new Problem("too_many_wrong_tokens", "too many wrong tokens; wait a minute", {
      headers: { "Retry-After": String(attempt.waitSeconds) },
    });
  }
  if (attempt.token === undefined) throw unauthorized("this needs a token: Authorization: Bearer tgm_...");
  const grantee = attempt.isAdmin ? adminOf(req) : await granteeOf(attempt.token, findToken);
  if (!grantee) {
    attempt.wasWrong();
    throw unauthorized("this token is unknown, revoked or expired");
  }
  attempt.wasRight();
  return grantee;
}

const unauthorized = (detail: string): Problem =>
  new Problem("unauthorized", detail, { headers: { "WWW-Authenticate": "Bearer" } });

const adminOf = (req: IncomingMessage): Grantee => {
  const by = req.headers[CLIENT_HEADER] === "console" ? "console" : "admin_token";
  return {
    tokenId: undefined,
    label: "ADMIN_TOKEN",
    scopes: SCOPES,
    accounts: undefined,
    expiresAtMs: undefined,
    by,
  };
};

async function granteeOf(
  token: string,
  findToken: (token: string) => Promise<TokenRecord | undefined>,
): Promise<Grantee | undefined> {
  if (!token.startsWith("tgm_")) return undefined;
  const record = await findToken(token);
  if (!record) return undefined;
  const { tokenId, label, scopes, accounts, expiresAtMs } = record;
  return { tokenId, label, scopes, accounts, expiresAtMs, by: `${tokenId} ${label}` };
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
