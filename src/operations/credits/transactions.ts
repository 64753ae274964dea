import { badCursor, cursorOf, positionOf, requirePageSize } from "../../records/cursors.ts";
import { ENTRY_KINDS, type EntryKind, RECLAIM } from "../../records/ledger-entries.ts";
import { partitionOf } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import { requireOrder } from "../access/operator-values.ts";
import { requireAccount } from "../accounts/accounts.ts";
import { type ArchivedHistory, type HistoryPage, isWanted, readHistory } from "./account-history.ts";
import { transactionOfAccount, transactionOfReference } from "./named-entries.ts";
import type { ArchiveLookUps } from "./refunds.ts";

/** Types that are asked for, and those that are stored. */
const TYPES = { consume: ["consume", RECLAIM], recharge: ["recharge"] } as const;

export interface TransactionQuery {
  type?: keyof typeof TYPES | undefined;
  kind?: EntryKind | undefined;
  /** Unix ms, inclusive. */
  fromMs?: number | undefined;
  /** Unix ms, exclusive. */
  toMs?: number | undefined;
  cursor?: string | undefined;
  limit: number;
}

/**
 * Newest first, from Redis and then from the archive. It reads some thousand entries at most, so it may be short and
 * still have a `next`. @throws OperatorError for an unknown account or a cursor of another list
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
 * A page with the transaction of an id or reference, or an empty one. @throws OperatorError for an unknown account,
 * an invalid reference and any cursor; `unavailable` if the archive is needed and unavailable
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

function wantedOf(type: TransactionQuery["type"], kind: TransactionQuery["kind"]): string[] | undefined {
  if (type === undefined && kind === undefined) return undefined;
  const types = type === undefined ? Object.values(TYPES).flat() : TYPES[type];
  const kinds = kind === undefined ? ENTRY_KINDS : [kind];
  return types.flatMap((one) => kinds.map((other) => `${one}/${other}`));
}
