import type { Static } from "typebox";
import { ACCOUNT_ID } from "../../../domain/operator-texts.ts";
import type { Scope } from "../../../domain/scopes.ts";
import { findAuditRecord } from "../../../operations/access/audit.ts";
import { tokenOfId } from "../../../operations/access/tokens.ts";
import { listAccounts } from "../../../operations/accounts/account-lists.ts";
import { readAccountObject } from "../../../operations/accounts/operator-accounts.ts";
import { findRefusal } from "../../../operations/accounts/refusal-log.ts";
import { searchWords } from "../../../operations/accounts/search-words.ts";
import { accountsOfReference } from "../../../operations/credits/references.ts";
import { type FindArchivedEntry, findTransaction } from "../../../operations/credits/transactions.ts";
import { findKey } from "../../../operations/keys/keys.ts";
import { findTask } from "../../../operations/tasks/operator-tasks.ts";
import { partitionOf } from "../../../records/names.ts";
import { OperatorError } from "../../../records/operator-error.ts";
import type { Placed } from "../../../records/words.ts";
import { readsOfMost, UnreadError } from "../../../redis/partition-reads.ts";
import { partitionsOf, type RedisNodes } from "../../../redis/store-facts.ts";
import type { Grantee } from "../authorize.ts";
import * as t from "../field-schemas.ts";
import { Problem } from "../problems.ts";
import { operation, page } from "../route.ts";
import { SearchResults } from "../view-schemas.ts";
import { isSeenBy } from "./tokens.ts";

const FOUND_MAX = 20;
const NO_ACCOUNTS = { accounts: [], next: undefined, unread: undefined };

type Found = Static<typeof SearchResults>["data"][number];

/** With which each kind is read. */
const SCOPES: Readonly<Record<Found["kind"], Scope>> = {
  account: "accounts:read",
  key: "keys:read",
  task: "tasks:read",
  request: "tasks:read",
  transaction: "credits:read",
  reference: "credits:read",
  token: "tokens:write",
  audit: "audit:read",
  refusal: "usage:read",
};

export const searchRoutes = [
  operation("GET /search", {
    scope: "accounts:read",
    name: "search",
    summary: "Find what an id, a label, metadata or a reference names",
    description:
      "An account, a key, a task, a request or a transaction by its whole id, also a token or an audit record; accounts by the beginning of their id; a refused request by the id that its customer quotes, for a day. Accounts by words of their label or of texts and numbers of their metadata, keys by words of their label, and grants, adjustments, reversals and refunds by words of their reference, as long as Redis knows it (at least 400 days): what is typed is the beginning of one of the first eight words (of a reference four; of all texts of an account 64), and may go on behind it. Case of A to Z and what stands between words do not matter. `complete` is false if there may be more: at most twenty are found by words, twenty accounts by a whole reference or the beginning of an id, or a server is away. The labels of tokens are not searched. A token finds what its scopes let it read; one for some accounts what belongs to them, among the first thousand that have the words.",
    query: t.object({ q: t.bounded(200, "What to look for.") }),
    answers: { 200: { description: "What was found; empty for nothing.", schema: SearchResults } },
    async operate(nodes, { query, grantee }, { lookUps }) {
      const q = query.q.trim();
      if (/^(sk|tgm)_/.test(q)) {
        throw new Problem("invalid", "this is a secret and has no place here: look for a key by its id");
      }
      const { found: all, complete } = await find(nodes, q, grantee, lookUps.findEntry);
      const isSeen = ({ kind, account_id: id }: Found): boolean =>
        grantee.scopes.includes(SCOPES[kind]) &&
        (kind === "token" || !grantee.accounts || (id !== null && grantee.accounts.includes(id)));
      return { data: all.filter(isSeen), complete };
    },
    answer: ({ data, complete }) => page(data, undefined, { complete }),
  }),
];

/** @returns also what whoever asks may not see */
async function find(
  nodes: RedisNodes,
  q: string,
  grantee: Grantee,
  findArchived: FindArchivedEntry | undefined,
): Promise<{ found: Found[]; complete: boolean }> {
  const partition = partitionOf(q, await partitionsOf(nodes));
  const may = (kind: Found["kind"]): boolean => grantee.scopes.includes(SCOPES[kind]);
  const reads = readsOfMost(nodes);
  let hasAll = true;
  const unlessAway = <Result>(looking: Promise<Result>): Promise<Result | undefined> =>
    looking.catch((error) => {
      reads.skip(error);
      hasAll = false;
      return undefined;
    });
  const looks: (false | Promise<Found | undefined>)[] = [
    // If the server of an account of this id is away, it may still be a key or a task of another one.
    unlessUnknown(reads.at(partition, () => readAccountObject(nodes, q))).then(
      (account) => account && found("account", q, q, account.label),
    ),
    unlessUnknown(findKey(nodes, q)).then((key) => key && found("key", q, key.accountId, key.label)),
    may("token") &&
      q.startsWith("tok_") &&
      unlessAway(tokenOfId(nodes, q)).then((token) =>
        token && isSeenBy(grantee, token) ? found("token", q, null, token.label) : undefined,
      ),
    may("audit") &&
      unlessAway(findAuditRecord(nodes, q)).then(
        (record) => record && found("audit", q, record.accountId || null),
      ),
    may("transaction") &&
      unlessAway(findTransaction(nodes, q, findArchived)).then(
        (entry) => entry && found("transaction", q, entry.accountId),
      ),
  ];
  const named = (await Promise.all(looks)).filter((one) => typeof one === "object");
  const own = grantee.accounts ?? undefined;
  const [referred, begun, worded] = await Promise.all([
    accountsOfReference(nodes, q),
    ACCOUNT_ID.test(q) ? listAccounts(nodes, { prefix: q, limit: FOUND_MAX }, own) : NO_ACCOUNTS,
    searchWords(nodes, q, { limit: FOUND_MAX, own }),
  ]);
  const byWords = worded.found
    .toSorted(accountsFirst)
    .map(({ accountId, keyId, reference, label, metadata }) =>
      reference === undefined
        ? { ...found(keyId ? "key" : "account", keyId ?? accountId, accountId, label), metadata }
        : found("reference", reference, accountId),
    );
  const all = [...named, ...referred.accountIds.map((accountId) => found("reference", q, accountId))];
  const known = new Set(all.map(placeOf));
  const byId = begun.accounts.map(({ accountId, label }) => found("account", accountId, accountId, label));
  for (const one of [...byId, ...byWords]) {
    if (!known.has(placeOf(one))) all.push(one);
    known.add(placeOf(one));
  }
  // A request may be where nothing can be read; that matters only if nothing else was found.
  const task = await unlessUnknown(findTask(nodes, q), all.length === 0 ? UnreadError : undefined);
  if (task) all.push(found(task.requestId === q ? "request" : "task", q, task.record.account_id ?? null));
  const refused = may("refusal") ? await unlessAway(findRefusal(nodes, q)) : undefined;
  if (refused)
    all.push({ ...found("refusal", q, refused.accountId, refused.outcome), key_id: refused.keyId });
  const isWhole = hasAll && [referred, begun, worded].every(({ unread }) => unread === undefined);
  return { found: all, complete: isWhole && referred.complete && worded.complete && !begun.next };
}

const rank = ({ keyId, reference }: Placed): number => (reference !== undefined ? 2 : keyId ? 1 : 0);
const accountsFirst = (one: Placed, other: Placed): number => rank(one) - rank(other);

const found = (
  kind: Found["kind"],
  id: string,
  accountId: string | null,
  label: string | null | undefined = null,
): Found => ({ kind, id, account_id: accountId, label, metadata: null, key_id: null });

const placeOf = ({ kind, id, account_id }: Found): string => JSON.stringify([kind, id, account_id]);

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
