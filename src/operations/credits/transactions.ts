import { badCursor, cursorOf, positionOf, requirePageSize } from "../../records/cursors.ts";
import { ENTRY_KINDS, type EntryKind } from "../../records/ledger-entries.ts";
import { partitionOf } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import { requireOrder } from "../access/operator-values.ts";
import { requireAccount } from "../accounts/accounts.ts";
import { type ArchivedHistory, type HistoryPage, isWanted, readHistory } from "./account-history.ts";
import { transactionOfAccount, transactionOfReference } from "./named-entries.ts";
import type { ArchiveLookUps } from "./refunds.ts";

const TYPES = ["consume", "recharge"] as const;

export interface TransactionQuery {
  type?: (typeof TYPES)[number] | undefined;
  kind?: EntryKind | undefined;
  /** Unix ms, itself included. */
  fromMs?: number | undefined;
  /** Unix ms, itself not included. */
  toMs?: number | undefined;
  cursor?: string | undefined;
  limit: number;
}

/**
 * A page of an account's transactions, newest first, back to its first one: from Redis, and what has left Redis from the
 * archive. It may have fewer than `limit`, even none, and still a `next`: a page looks at some thousand entries at most.
 * @param archive reads what has left Redis; without it the list ends there, and `reachesBackToMs` says so
 * @throws OperatorError for an unknown account, a bad limit, and a cursor of another list
 */
export async function pageTransactions(
  nodes: RedisNodes,
  accountId: string,
  { type, kind, fromMs, toMs, cursor, limit }: TransactionQuery,
  archive?: { history: ArchivedHistory },
): Promise<HistoryPage> {
  requirePageSize(limit);
  requireOrder(fromMs, toMs);
  const list = ["transactions", accountId, type, kind, fromMs, toMs];
  const position = cursor === undefined ? undefined : positionOf(list, cursor);
  const partition = partitionOf(accountId, await partitionsOf(nodes));
  const page = await readHistory({
    ...{ redis: nodes.of(partition), partition, accountId, position, limit },
    filter: { wanted: wantedOf(type, kind), fromMs, toMs },
    archive: archive?.history,
  });
  return { ...page, next: page.next === undefined ? undefined : cursorOf(list, page.next) };
}

/**
 * The account's transaction of this id or under this reference, if it is one that the other filters ask for: a page of one, or of
 * none.
 * @throws OperatorError for an unknown account, what is no reference, and any cursor; `unavailable` if the archive is needed and away
 */
export async function namedTransactions(
  nodes: RedisNodes,
  accountId: string,
  query: TransactionQuery & { id?: string | undefined; reference?: string | undefined },
  archive: ArchiveLookUps,
): Promise<HistoryPage> {
  const { id, reference, type, kind, fromMs, toMs, cursor } = query;
  if (cursor !== undefined) throw badCursor();
  requireOrder(fromMs, toMs);
  await requireAccount(nodes, accountId);
  const entry =
    id === undefined
      ? await transactionOfReference(nodes, accountId, reference ?? "", archive.readArchived)
      : await transactionOfAccount(nodes, accountId, id, archive.findEntry);
  const isAsked =
    entry !== undefined &&
    (reference === undefined || entry.reference === reference) &&
    isWanted(entry, { wanted: wantedOf(type, kind), fromMs, toMs });
  return { entries: isAsked ? [entry] : [], next: undefined };
}

/** As the script and the archive filter; undefined for all. */
function wantedOf(type: TransactionQuery["type"], kind: TransactionQuery["kind"]): string[] | undefined {
  if (type === undefined && kind === undefined) return undefined;
  const types = type === undefined ? TYPES : [type];
  const kinds = kind === undefined ? ENTRY_KINDS : [kind];
  return types.flatMap((one) => kinds.map((other) => `${one}/${other}`));
}
