import { cursorOf, positionOf, requirePageSize } from "../../records/cursors.ts";
import { type LedgerEntry, ledgerEntry } from "../../records/ledger-entries.ts";
import { partitionNames } from "../../records/names.ts";
import type { RedisNodes } from "../../redis/nodes.ts";
import { manyByNode } from "../../redis/pipelines.ts";
import { partitionsOf } from "../../redis/store-facts.ts";
import type { HistoryFilter } from "../../scripts/history.ts";
import { requireOrder } from "../access/operator-values.ts";
import { newestFirst, positionText, readPosition } from "../newest-first.ts";
import { type HistoryPage, isWanted } from "./account-history.ts";
import { type TransactionQuery, wantedOf } from "./transactions.ts";

const LOOKED_AT_MAX = 1000;
const PAGE = 20;

/** Of all accounts, newest first. @param position undefined for the newest, else a `next` */
export type ArchivedTransactions = (
  filter: HistoryFilter,
  position: string | undefined,
  limit: number,
) => Promise<Pick<HistoryPage, "entries" | "next">>;

/**
 * Transactions of all accounts, newest first, from the archive if there is one, else from Redis as far as it reaches. Looks at a
 * bounded number, so a page may be short and still have a `next`. @throws OperatorError for a cursor of another list
 */
export async function pageAllTransactions(
  nodes: RedisNodes,
  { type, kind, fromMs, toMs, cursor, limit }: TransactionQuery,
  archive?: { transactions: ArchivedTransactions },
): Promise<HistoryPage & { source: "archive" | "redis" }> {
  requirePageSize(limit);
  requireOrder(fromMs, toMs);
  const source = archive ? "archive" : "redis";
  const list = ["all-transactions", source, type, kind, fromMs, toMs];
  const position = cursor === undefined ? undefined : positionOf(list, cursor);
  const filter = { wanted: wantedOf(type, kind), fromMs, toMs };
  if (archive) {
    const { entries, next } = await archive.transactions(filter, position, limit);
    return { source, entries, next: next && cursorOf(list, next) };
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
