import { randomBytes } from "node:crypto";
import { exceededRight, SCOPES, type Scope } from "../../domain/scopes.ts";
import type { Actor } from "../../records/actor.ts";
import { cursorOf, type PageQuery, positionOf, requirePageSize } from "../../records/cursors.ts";
import { digestOf, tokenNames } from "../../records/names.ts";
import { OperatorError } from "../../records/operator-error.ts";
import type { StoredToken } from "../../records/records.ts";
import { many } from "../../redis/pipelines.ts";
import { scriptsOf } from "../../redis/script-runner.ts";
import { storeNowMs } from "../../redis/server-info.ts";
import type { RedisNodes } from "../../redis/store-facts.ts";
import { type RankedPlace, ranked } from "../../scripts/ledger.ts";
import { revokeToken as revokeTokenScript, token as tokenScript } from "../../scripts/tokens.ts";
import { placeText, readPlace } from "../accounts/account-ranks.ts";
import { requireAccountId, requireExpiry, requireFutureExpiry, requireLabel } from "./operator-values.ts";

/** Per family of tokens that operators made, and in total. TOKEN removes those that have ended. */
const TOKENS_MAX = 10_000;
const ACCOUNTS_MAX = 100;
const REVOKING_CALLS_MAX = 50;
/** 32 random bytes. */
const TOKEN = /^tgm_[\w-]{43}$/;

export interface TokenRecord {
  tokenId: string;
  label: string;
  scopes: readonly Scope[];
  /** Undefined: all accounts. */
  accounts: readonly string[] | undefined;
  /** The token that made it; undefined for operators. Revoking the parent revokes this one. */
  parent: string | undefined;
  /** The first token of its family; itself without a parent. */
  root: string;
  createdAtMs: number;
  expiresAtMs: number | undefined;
  revokedAtMs: number | undefined;
}

interface TokenOptions {
  label: string;
  scopes: readonly Scope[];
  accounts?: readonly string[] | undefined;
  expiresAtMs?: number | undefined;
}

export type Maker = Pick<TokenRecord, "tokenId" | "root" | "scopes" | "accounts" | "expiresAtMs"> & {
  familyMost: number;
};

/** Stores only the SHA-256. @param maker undefined: an operator @throws OperatorError `invalid`, `forbidden` beyond its rights, `conflict` */
export async function createToken(
  nodes: RedisNodes,
  options: TokenOptions,
  actor: Actor,
  maker?: Maker,
): Promise<{ token: string; record: TokenRecord }> {
  const { label, scopes, accounts, expiresAtMs } = options;
  requireOptions(options);
  const exceeded = maker && exceededRight(maker, options);
  if (exceeded !== undefined) throw new OperatorError(exceeded, "forbidden");
  const secret = `tgm_${randomBytes(32).toString("base64url")}`;
  const tokenId = `tok_${randomBytes(9).toString("base64url")}`;
  const redis = nodes.ofName(tokenNames(tokenId).token);
  nodes.requireWritable?.([redis]);
  if (expiresAtMs !== undefined) requireFutureExpiry(expiresAtMs, await storeNowMs(redis));
  const reply = await scriptsOf(redis).run(tokenScript, {
    tokenId,
    actor,
    parent: maker,
    most: TOKENS_MAX,
    familyMost: maker?.familyMost ?? TOKENS_MAX,
    fields: {
      label,
      scopes: JSON.stringify([...new Set(scopes)]),
      sha256: digestOf(secret),
      ...(accounts && { accounts: JSON.stringify([...new Set(accounts)]) }),
      ...(expiresAtMs !== undefined && { expires_at: expiresAtMs }),
    },
  });
  if (reply.outcome === "created") return { token: secret, record: tokenRecord(tokenId, reply.record) };
  if (reply.outcome === "parent_ended") {
    throw new OperatorError("this token has ended meanwhile", "forbidden");
  }
  const most = reply.outcome === "family_full" ? maker?.familyMost : TOKENS_MAX;
  const whose = reply.outcome === "family_full" ? " made with one token (admin.tokens_per_token)" : "";
  throw new OperatorError(
    `there are ${most} tokens${whose} that have not ended; revoke some of them`,
    "too_many_tokens",
  );
}

function requireOptions({ label, scopes, accounts, expiresAtMs }: TokenOptions): void {
  requireExpiry(expiresAtMs);
  requireLabel(label);
  const unknown = scopes.find((scope) => !SCOPES.includes(scope));
  if (scopes.length === 0 || unknown !== undefined) {
    const wrong = unknown === undefined ? "a token needs a scope" : `there is no scope ${unknown}`;
    throw new OperatorError(`${wrong}; scopes are ${SCOPES.join(", ")}`, "invalid", "scopes");
  }
  if (accounts === undefined) return;
  if (accounts.length === 0 || accounts.length > ACCOUNTS_MAX) {
    throw new OperatorError(
      `accounts are 1 to ${ACCOUNTS_MAX}; leave them out for all`,
      "invalid",
      "accounts",
    );
  }
  for (const account of accounts) requireAccountId(account);
}

export async function findToken(nodes: RedisNodes, secret: string): Promise<TokenRecord | undefined> {
  if (!TOKEN.test(secret)) return undefined;
  const { tokenIds } = tokenNames("");
  const redis = nodes.ofName(tokenIds);
  const tokenId = await redis.hget(tokenIds, digestOf(secret));
  if (tokenId === null) return undefined;
  const stored: StoredToken = await redis.hgetall(tokenNames(tokenId).token);
  if (stored.sha256 === undefined || stored.revoked_at !== undefined) return undefined;
  const record = tokenRecord(tokenId, stored);
  // An invalid expiry counts as expired.
  const isGood = record.expiresAtMs === undefined || record.expiresAtMs > (await storeNowMs(redis));
  return isGood ? record : undefined;
}

/** Newest first, ended ones included. @throws OperatorError for an invalid cursor */
export async function listTokens(
  nodes: RedisNodes,
  { cursor, limit }: PageQuery,
): Promise<{ tokens: TokenRecord[]; next: string | undefined }> {
  requirePageSize(limit);
  const { tokens: name } = tokenNames("");
  const redis = nodes.ofName(name);
  // The token behind which a page begins may have been removed meanwhile.
  const after = cursor === undefined ? undefined : readPlace(positionOf(LIST, cursor));
  const places = await scriptsOf(redis).run(ranked, { list: name, after, most: limit + 1, descending: true });
  const shown = places.slice(0, limit);
  const records = await many<StoredToken, RankedPlace>(redis, shown, (pipe, { member }) =>
    pipe.hgetall(tokenNames(member).token),
  );
  return {
    tokens: records.map((record, at) => tokenRecord(shown[at]!.member, record)),
    next: places.length > limit ? cursorOf(LIST, placeText(shown.at(-1)!)) : undefined,
  };
}

const LIST = ["tokens"];

/** Ends a token and all made with it; a repeat continues after an interruption. @throws OperatorError `not_found` */
export async function revokeToken(nodes: RedisNodes, tokenId: string, actor: Actor): Promise<TokenRecord> {
  const { root } = await readToken(nodes, tokenId);
  const redis = nodes.ofName(tokenNames(tokenId).token);
  nodes.requireWritable?.([redis]);
  // Tokens made meanwhile are found by the next call.
  for (let calls = 0; calls < REVOKING_CALLS_MAX; calls++) {
    const reply = await scriptsOf(redis).run(revokeTokenScript, { tokenId, root, actor });
    if (reply.outcome === "missing") throw noToken(tokenId);
    if (reply.left === 0) return tokenRecord(tokenId, reply.record);
  }
  throw new OperatorError(
    `token ${tokenId} is revoked, but not all that were made with it; repeat this`,
    "unavailable",
  );
}

export const noToken = (tokenId: string): OperatorError =>
  new OperatorError(`there is no token ${tokenId}`, "not_found");

export async function tokenOfId(nodes: RedisNodes, tokenId: string): Promise<TokenRecord | undefined> {
  const { token } = tokenNames(tokenId);
  const stored: StoredToken = await nodes.ofName(token).hgetall(token);
  return stored.sha256 === undefined ? undefined : tokenRecord(tokenId, stored);
}

export async function readToken(nodes: RedisNodes, tokenId: string): Promise<TokenRecord> {
  const token = await tokenOfId(nodes, tokenId);
  if (!token) throw noToken(tokenId);
  return token;
}

function tokenRecord(tokenId: string, stored: StoredToken): TokenRecord {
  const time = (text: string | undefined): number | undefined =>
    text === undefined ? undefined : Number(text);
  return {
    tokenId,
    label: stored.label ?? "",
    scopes: JSON.parse(stored.scopes ?? "[]") as Scope[],
    accounts: stored.accounts === undefined ? undefined : (JSON.parse(stored.accounts) as string[]),
    parent: stored.parent,
    root: stored.root ?? tokenId,
    createdAtMs: Number(stored.created_at ?? 0),
    expiresAtMs: time(stored.expires_at),
    revokedAtMs: time(stored.revoked_at),
  };
}
