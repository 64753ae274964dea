import { entryOfTail, readCheckpoint } from "../../records/checkpoints.ts";
import {
  badCursor,
  cursorOf,
  type PageQuery,
  type Period,
  positionOf,
  requirePageSize,
} from "../../records/cursors.ts";
import {
  ENTRY_KINDS,
  type EntryKind,
  type LedgerEntry,
  ledgerEntry,
  type PlaceOfEntry,
  placeOfTransaction,
  RECLAIM,
} from "../../records/ledger-entries.ts";
import { accountNames, partitionNames } from "../../records/names.ts";
import { manyByNode } from "../../redis/pipelines.ts";
import { partitionsOf, placeOfAccount, type RedisNodes } from "../../redis/store-facts.ts";
import type { HistoryFilter } from "../../scripts/ledger.ts";
import { requireOrder } from "../access/operator-values.ts";
import { requireAccount } from "../accounts/accounts.ts";
import { newestFirst, positionText, readPosition } from "../newest-first.ts";
import { type ArchivedHistory, type HistoryPage, isWanted, readHistory } from "./account-history.ts";
import { archivedUntilMs } from "./archive-lag.ts";
import { entryUnder, fromArchive, type ReadArchived, requireReference } from "./references.ts";
import type { ArchiveLookUps } from "./refunds.ts";

const TYPES = { consume: ["consume", RECLAIM], recharge: ["recharge"] } as const;

export interface TransactionQuery extends PageQuery, Period {
  type?: keyof typeof TYPES | undefined;
  kind?: EntryKind | undefined;
}

/** Newest first, Redis then archive; some thousand entries are read. @throws OperatorError for an unknown account or another cursor */
export async function pageTransactions(
  nodes: RedisNodes,
  accountId: string,
  { type, kind, fromMs, toMs, cursor, limit }: TransactionQuery,
  archive?: { history: ArchivedHistory },
): Promise<HistoryPage> {
  requirePageSize(limit);
  requireOrder(fromMs, toMs);
  const list = ["transactions", accountId, type, kind, fromMs, toMs];
  const position = positionOf(list, cursor);
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  const page = await readHistory({
    ...{ redis: redis, partition, accountId, position, limit },
    filter: { wanted: wantedOf(type, kind), fromMs, toMs },
    archive: archive?.history,
  });
  return { ...page, next: page.next === undefined ? undefined : cursorOf(list, page.next) };
}

/** One transaction, or none. @throws OperatorError for an unknown account, an invalid reference, any cursor; `unavailable` archive */
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

export function wantedOf(
  type: TransactionQuery["type"],
  kind: TransactionQuery["kind"],
): string[] | undefined {
  if (type === undefined && kind === undefined) return undefined;
  const types = type === undefined ? Object.values(TYPES).flat() : TYPES[type];
  const kinds = kind === undefined ? ENTRY_KINDS : [kind];
  return types.flatMap((one) => kinds.map((other) => `${one}/${other}`));
}

/** Undefined if the archive has none. @throws Error if the archive is unavailable, or another store's */
export type FindArchivedEntry = (nodes: RedisNodes, place: PlaceOfEntry) => Promise<LedgerEntry | undefined>;

/** By the public id. @throws OperatorError `unavailable` if the archive is needed and unavailable */
export async function findTransaction(
  nodes: RedisNodes,
  id: string,
  findArchived: FindArchivedEntry | undefined,
): Promise<LedgerEntry | undefined> {
  const place = placeOfTransaction(id);
  if (!place || place.partition >= (await partitionsOf(nodes))) return undefined;
  const { partition, streamId } = place;
  const [found] = await nodes.of(partition).xrange(partitionNames(partition).ledger, streamId, streamId);
  if (found) return ledgerEntry(partition, found);
  return findArchived && fromArchive(() => findArchived(nodes, place));
}

/** Without an archive, trimmed entries come from the checkpoint. */
export async function transactionOfAccount(
  nodes: RedisNodes,
  accountId: string,
  id: string,
  findArchived: FindArchivedEntry | undefined,
): Promise<LedgerEntry | undefined> {
  const found = await findTransaction(nodes, id, findArchived);
  if (found) return found.accountId === accountId ? found : undefined;
  const place = placeOfTransaction(id);
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  if (place?.partition !== partition) return undefined;
  const checkpoint = await readCheckpoint(redis, partition, accountId);
  const entry = checkpoint?.tail.find(({ streamId }) => streamId === place.streamId);
  return entry && entryOfTail(partition, accountId, entry);
}

/** Without an archive, undefined also if forgotten. @throws OperatorError for an invalid reference; `unavailable` archive */
export async function transactionOfReference(
  nodes: RedisNodes,
  accountId: string,
  reference: string,
  readArchived: ReadArchived | undefined,
): Promise<LedgerEntry | undefined> {
  requireReference(reference);
  const { partition, redis } = await placeOfAccount(nodes, accountId);
  const readOthers: ReadArchived | undefined =
    readArchived && ((...of) => fromArchive(() => readArchived(...of)));
  // Otherwise an unknown reference would be searched among the latest entries.
  if (await redis.hexists(accountNames(partition, accountId).references, reference))
    return entryUnder(nodes, { partition, accountId, reference }, readOthers);
  return readOthers?.(nodes, accountId, reference);
}

const LOOKED_AT_MAX = 1000;
const PAGE = 20;

/** Of all accounts, newest first. @param position undefined for the newest, else a `next` */
export type ArchivedTransactions = (
  filter: HistoryFilter,
  position: string | undefined,
  limit: number,
) => Promise<Pick<HistoryPage, "entries" | "next">>;

/** Of all accounts, newest first, from the archive if there is one. A bounded number is read. @throws OperatorError for another cursor */
export async function pageAllTransactions(
  nodes: RedisNodes,
  { type, kind, fromMs, toMs, cursor, limit }: TransactionQuery,
  archive?: { transactions: ArchivedTransactions },
): Promise<HistoryPage & { source: "archive" | "redis"; untilMs?: number | undefined }> {
  requirePageSize(limit);
  requireOrder(fromMs, toMs);
  const source = archive ? "archive" : "redis";
  const list = ["all-transactions", source, type, kind, fromMs, toMs];
  const position = positionOf(list, cursor);
  const filter = { wanted: wantedOf(type, kind), fromMs, toMs };
  if (archive) {
    const untilMs = await archivedUntilMs(nodes, toMs);
    const { entries, next } = await archive.transactions(filter, position, limit);
    return { source, untilMs, entries, next: next && cursorOf(list, next) };
  }
  const partitions = Array.from({ length: await partitionsOf(nodes) }, (_, at) => at);
  const { rows, next } = await newestFirst<LedgerEntry>({
    ...{ nodes, partitions, fromMs, toMs, limit, pageSize: PAGE, lookedAtMax: LOOKED_AT_MAX },
    nameOf: (partition) => partitionNames(partition).ledger,
    after: position === undefined ? undefined : readPosition(position),
    rowOf(partition, stored) {
      const entry = ledgerEntry(partition, stored);
      return isWanted(entry, filter) ? entry : undefined;
    },
  });
  if (next) return { source, entries: rows, next: cursorOf(list, positionText(next)) };
  return {
    source,
    entries: rows,
    next: undefined,
    reachesBackToMs: await reachOf(nodes, partitions, fromMs),
  };
}

/** From when on all entries are in Redis; undefined if all that are asked for are. */
async function reachOf(
  nodes: RedisNodes,
  partitions: readonly number[],
  fromMs = 0,
): Promise<number | undefined> {
  const left = await manyByNode<string | null, number>(
    partitions,
    (partition) => nodes.of(partition),
    (pipe, partition) => pipe.hget(partitionNames(partition).trimmed, "at"),
  );
  const lastMs = Math.max(-1, ...left.map((at) => (at === null ? -1 : Number(at))));
  return lastMs >= fromMs ? lastMs + 1 : undefined;
}
