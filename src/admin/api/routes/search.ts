import { type Static, Type } from "typebox";
import { findAuditRecord } from "../../../operations/access/audit.ts";
import type { RedisNodes } from "../../../operations/access/operator-session.ts";
import { tokenOfId } from "../../../operations/access/tokens.ts";
import { listAccounts } from "../../../operations/accounts/account-lists.ts";
import { readAccountObject } from "../../../operations/accounts/operator-accounts.ts";
import { type FindArchivedEntry, findTransaction } from "../../../operations/credits/named-entries.ts";
import { accountsOfReference } from "../../../operations/credits/reference-index.ts";
import { findKey } from "../../../operations/keys/keys.ts";
import { findTask } from "../../../operations/tasks/operator-tasks.ts";
import { partitionOf } from "../../../records/names.ts";
import { OperatorError } from "../../../records/operator-error.ts";
import { readsOfMost, UnreadError } from "../../../redis/partition-reads.ts";
import { partitionsOf } from "../../../redis/store-facts.ts";
import type { Grantee } from "../authorize.ts";
import { Problem } from "../problems.ts";
import { operation, page } from "../route.ts";
import { SearchResults } from "../view-schemas.ts";
import { isSeenBy } from "./tokens.ts";

const LABELS_MAX = 20;

interface Found {
  kind: Static<typeof SearchResults>["data"][number]["kind"];
  id: string;
  account_id: string | null;
  label: string | null;
}

export const searchRoutes = [
  operation("GET /search", {
    scope: "accounts:read",
    name: "search",
    summary: "Find what an id, a reference or a label names",
    description:
      "An account, a key, a task, a request or a transaction by its whole id, and a token or an audit record for those who may list it; accounts by the beginning of their label; and accounts with a grant, an adjustment or a refund of this reference that Redis still knows (at least 400 days). `complete` is false if there may be more accounts: twenty have the label or the reference, or a server is away. The labels of keys and tokens are not searched. A token for some accounts finds what belongs to them.",
    query: Type.Object(
      { q: Type.String({ minLength: 1, maxLength: 200, description: "What to look for." }) },
      { additionalProperties: false },
    ),
    answers: { 200: { description: "What was found; empty for nothing.", schema: SearchResults } },
    async operate(nodes, { query, grantee }, { lookUps }) {
      const q = query.q.trim();
      if (/^(sk|tgm)_/.test(q)) {
        throw new Problem("invalid", "this is a secret and has no place here: look for a key by its id");
      }
      const { found, complete } = await find(nodes, q, grantee, lookUps.findEntry);
      const isSeen = ({ kind, account_id: id }: Found): boolean =>
        kind === "token" || !grantee.accounts || (id !== null && grantee.accounts.includes(id));
      return { data: found.filter(isSeen), complete };
    },
    answer: ({ data, complete }) => page(data, undefined, { complete }),
  }),
];

/** @returns also what belongs to accounts that whoever asks may not see */
async function find(
  nodes: RedisNodes,
  q: string,
  grantee: Grantee,
  findArchived: FindArchivedEntry | undefined,
): Promise<{ found: Found[]; complete: boolean }> {
  const named = (
    await Promise.all([
      findAccount(nodes, q),
      findAKey(nodes, q),
      findAToken(nodes, q, grantee),
      findAnAuditRecord(nodes, q, grantee),
      findATransaction(nodes, q, findArchived),
    ])
  ).filter((one) => one !== undefined);
  const labelled = await findLabels(nodes, q, grantee.accounts);
  const found = [...named, ...labelled.found.filter(({ id }) => named.every((one) => one.id !== id))];
  const referred = await findReferences(nodes, q);
  found.push(...referred.found);
  // A request may be where nothing can be read; that matters only if nothing else was found.
  const request = await findARequest(nodes, q, found.length === 0);
  if (request) found.push(request);
  return { found, complete: labelled.complete && referred.complete };
}

/** @param own the only accounts that whoever asks may see; undefined: all */
async function findLabels(
  nodes: RedisNodes,
  label: string,
  own: readonly string[] | undefined,
): Promise<{ found: Found[]; complete: boolean }> {
  const { accounts, next, unread } = await listAccounts(nodes, { label, limit: LABELS_MAX }, own);
  const found = accounts.map(
    ({ accountId: id, label }): Found => ({ kind: "account", id, account_id: id, label }),
  );
  return { found, complete: next === undefined && unread === undefined };
}

async function findReferences(nodes: RedisNodes, q: string): Promise<{ found: Found[]; complete: boolean }> {
  const { accountIds, complete, unread } = await accountsOfReference(nodes, q);
  const found = accountIds.map((id): Found => ({ kind: "reference", id: q, account_id: id, label: null }));
  return { found, complete: complete && unread === undefined };
}

async function findAccount(nodes: RedisNodes, id: string): Promise<Found | undefined> {
  const partition = partitionOf(id, await partitionsOf(nodes));
  // If the server of an account of this id is away, it may still be a key or a task of another one.
  const account = await unlessUnknown(readsOfMost(nodes).at(partition, () => readAccountObject(nodes, id)));
  return account && { kind: "account", id, account_id: id, label: account.label };
}

async function findAKey(nodes: RedisNodes, id: string): Promise<Found | undefined> {
  const key = await unlessUnknown(findKey(nodes, id));
  return key && { kind: "key", id, account_id: key.accountId, label: key.label ?? null };
}

async function findAToken(nodes: RedisNodes, id: string, grantee: Grantee): Promise<Found | undefined> {
  if (!id.startsWith("tok_") || !grantee.scopes.includes("tokens:write")) return undefined;
  const token = await tokenOfId(nodes, id);
  return token && isSeenBy(grantee, token)
    ? { kind: "token", id, account_id: null, label: token.label }
    : undefined;
}

async function findAnAuditRecord(
  nodes: RedisNodes,
  id: string,
  grantee: Grantee,
): Promise<Found | undefined> {
  if (!grantee.scopes.includes("audit:read")) return undefined;
  const record = await findAuditRecord(nodes, id);
  return record && { kind: "audit", id, account_id: record.accountId || null, label: null };
}

async function findATransaction(
  nodes: RedisNodes,
  id: string,
  findArchived: FindArchivedEntry | undefined,
): Promise<Found | undefined> {
  const entry = await findTransaction(nodes, id, findArchived);
  return entry && { kind: "transaction", id, account_id: entry.accountId, label: null };
}

async function findARequest(
  nodes: RedisNodes,
  id: string,
  throwsUnread: boolean,
): Promise<Found | undefined> {
  const task = await unlessUnknown(findTask(nodes, id), throwsUnread ? UnreadError : undefined);
  if (!task) return undefined;
  const kind = task.requestId === id ? "request" : "task";
  return { kind, id, account_id: task.record.account_id ?? null, label: null };
}

/** @param besides errors that are thrown all the same */
async function unlessUnknown<Result>(
  looking: Promise<Result>,
  besides?: typeof UnreadError,
): Promise<Result | undefined> {
  try {
    return await looking;
  } catch (error) {
    if (error instanceof OperatorError && !(besides && error instanceof besides)) return undefined;
    throw error;
  }
}
