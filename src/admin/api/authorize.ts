import type { IncomingMessage } from "node:http";
import { dropOldest } from "../../domain/bounded.ts";
import { FairGate } from "../../domain/fair-gate.ts";
import { DAY_MS } from "../../domain/moments.ts";
import { SCOPES, type Scope } from "../../domain/scopes.ts";
import type { TokenRecord } from "../../operations/access/tokens.ts";
import type { SignInRefusal } from "../../telemetry/metrics/requests.ts";
import type { Access, TokenAttempt } from "../access.ts";
import { Problem } from "./problems.ts";

/** Who calls the API, and what they may do. */
export interface Grantee {
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

const RUNNING_MAX = 8;
const WAITING_MAX = 32;

/** @throws Problem `overloaded` for more calls than may run and wait */
export function createCallLimit() {
  const gate = new FairGate({ inFlightMax: RUNNING_MAX, waitingMax: WAITING_MAX });
  return {
    run: <T>(owner: string, work: () => Promise<T>): Promise<T> => gate.run(owner, work, overloaded),
  };
}

const overloaded = (): Problem =>
  new Problem("overloaded", "too many calls at a time", { headers: { "Retry-After": "1" } });

const MINUTE_MS = 60_000;
/** Families that are counted. Operators make the first token of each. */
const FAMILIES_MAX = 10_000;
/** Added to the body of each write, for its audit record. */
const RECORD_BYTES = 512;

interface WriteBounds {
  writesPerMinute: number;
  bytesPerDay: number;
}

/** `ends`: it revokes, suspends or closes, which counts apart from what adds something. */
export type WriteKind = "ends" | "adds";

interface Used {
  minute: Count;
  day: Count;
}
interface Count {
  sum: number;
  sinceMs: number;
}

/** Bounds what tokens of the management API write: a small one must not fill the store. What they refuse does not count. */
export function createWriteBudget(bounds: () => WriteBounds, nowMs: () => number = () => performance.now()) {
  const families = new Map<string, Used>();

  function usedBy(owner: string): Used {
    const now = nowMs();
    const used = families.get(owner) ?? { minute: { sum: 0, sinceMs: now }, day: { sum: 0, sinceMs: now } };
    if (!families.has(owner)) dropOldest(families, FAMILIES_MAX);
    families.set(owner, used);
    if (now - used.minute.sinceMs >= MINUTE_MS) used.minute = { sum: 0, sinceMs: now };
    if (now - used.day.sinceMs >= DAY_MS) used.day = { sum: 0, sinceMs: now };
    return used;
  }

  return {
    /** Counts a write. @param root the first token of the family; undefined: ADMIN_TOKEN, unbounded @throws Problem `too_many_writes` */
    take(root: string | undefined, kind: WriteKind, bodyBytes: number): void {
      if (root === undefined) return;
      const { minute, day } = usedBy(`${kind} ${root}`);
      const { writesPerMinute, bytesPerDay } = bounds();
      const bytes = bodyBytes + RECORD_BYTES;
      if (minute.sum + 1 > writesPerMinute) {
        throw tooMany(`${writesPerMinute} writes a minute`, minute.sinceMs + MINUTE_MS - nowMs());
      }
      if (day.sum + bytes > bytesPerDay) {
        throw tooMany(`${bytesPerDay} bytes a day`, day.sinceMs + DAY_MS - nowMs());
      }
      minute.sum++;
      day.sum += bytes;
    },
  };
}

const tooMany = (bound: string, waitMs: number): Problem =>
  new Problem("too_many_writes", `this token and those made with it may write ${bound}`, {
    headers: { "Retry-After": String(Math.max(1, Math.ceil(waitMs / 1000))) },
  });
