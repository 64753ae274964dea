import { isMomentMs } from "../domain/moments.ts";
import type { ArchivedUsage } from "../ledger/account-usage.ts";
import type { ArchivedSales } from "../ledger/sales.ts";
import type { ArchivedStatements } from "../ledger/statements.ts";
import type { ArchivedTotal } from "../ledger/total-statement.ts";
import type { ArchivedSpenders } from "../operations/accounts/top-accounts.ts";
import type { ArchivedHistory, HistoryPage } from "../operations/credits/account-history.ts";
import type { ArchivedTransactions } from "../operations/credits/transactions.ts";
import type { ArchivedRequests, TaskView } from "../operations/tasks/task-lists.ts";
import { badCursor } from "../records/cursors.ts";
import type { LedgerEntry } from "../records/ledger-entries.ts";
import { OperatorError } from "../records/operator-error.ts";
import type { RedisNodes } from "../redis/store-facts.ts";
import type { HistoryFilter } from "../scripts/ledger.ts";
import { connectArchive } from "./archive-connection.ts";
import { archiveReason } from "./archive-reasons.ts";
import {
  archivedSales,
  archivedSpenders,
  archivedStatements,
  archivedTotal,
  archivedUsage,
  copiedUntilMs,
  lostUntilMs,
} from "./archived-usage.ts";
import { identifyFor } from "./identity.ts";
import { type EntryRow, entryOf } from "./rows.ts";
import type { ArchiveQuery } from "./tables.ts";

const STATEMENT_MS = 5000;
const CONNECTIONS_MAX = 2;

/** Reads of lists. @throws OperatorError `unavailable` while the archive cannot be used */
export interface ArchiveReads extends ArchivedUsage, ArchivedStatements {
  history: ArchivedHistory;
  requests: ArchivedRequests;
  transactions: ArchivedTransactions;
  spenders: ArchivedSpenders;
  sales: ArchivedSales;
  total: ArchivedTotal;
}

/** Separate connections: copying never waits for a list. */
export function openArchiveReads(url: string) {
  const archive = connectArchive(url, { statementMs: STATEMENT_MS, most: CONNECTIONS_MAX });
  return {
    of(nodes: RedisNodes): ArchiveReads {
      let identified: Promise<void> | undefined;
      const query: ArchiveQuery = async (text, values) => {
        try {
          identified ??= identifyFor(nodes, archive.query);
          await identified;
          return await archive.query(text, values);
        } catch (error) {
          const { why } = archiveReason(error as Error);
          throw new OperatorError(`the archive cannot be read now (${why}); try again later`, "unavailable");
        }
      };
      return {
        history: createArchivedHistory(query),
        requests: createArchivedRequests(query),
        transactions: createArchivedTransactions(query),
        spenders: (days, limit) => archivedSpenders(query, days, limit),
        sales: (month) => archivedSales(query, month),
        total: (month) => archivedTotal(query, month),
        usage: (selection) => archivedUsage(query, selection),
        statements: (accountIds, month) => archivedStatements(query, accountIds, month),
        copiedUntilMs: (partition) => copiedUntilMs(query, partition),
        lostUntilMs: (beforeMs, partition) => lostUntilMs(query, beforeMs, partition),
      };
    },
    close: archive.close,
  };
}

const LOOKED_AT_MAX = 3000;

// Positions "first" or "before" an entry; PostgreSQL's integers end at 2^63 - 1.
const POSITION = /^(first|before) (\d{1,18})-(\d{1,18})(?: (\d{1,14}) (\d{1,18})-(\d{1,18}))?$/;

/** A page of ledger entries and how far it looked: of those that it looks at, a filter may let few through. */
const pageOf = (of: { keys: string; place: string; among: string; shown: string; limit: string }): string => {
  const latestFirst = of.keys.replaceAll(/\w+/g, "$& DESC");
  return `
  WITH looked_at AS MATERIALIZED (
    SELECT * FROM tollgate.ledger_entries WHERE ${of.among} ORDER BY ${latestFirst} LIMIT ${LOOKED_AT_MAX}
  ), shown AS (
    SELECT * FROM looked_at WHERE ${of.shown} ORDER BY ${latestFirst} LIMIT ${of.limit}
  )
  SELECT shown.*, looked.* FROM (
    SELECT count(*)::int AS looked_at,
      (array_agg((extract(epoch FROM at) * 1000)::bigint || ' ' || ${of.place} ORDER BY ${of.keys}))[1] AS last_place
    FROM looked_at
  ) looked LEFT JOIN shown ON true
  ORDER BY ${latestFirst}`;
};

type PageRow = EntryRow & { looked_at: number; last_place: string | null };

/** @param limit the most that are shown @param placeOf as the page has it @returns also the place behind which the next page begins */
async function readPage(
  query: ArchiveQuery,
  [page, values]: [page: string, values: readonly unknown[]],
  limit: number,
  placeOf: (entry: LedgerEntry) => string,
): Promise<HistoryPage> {
  const rows = await query<PageRow>(page, values);
  const entries = rows.flatMap((row) => (row.id === null ? [] : [entryOf(row)]));
  const last = entries.at(-1);
  const { looked_at: lookedAt = 0, last_place: lastPlace = null } = rows[0] ?? {};
  const place = last && placeOf(last);
  if (entries.length === limit && place !== undefined && place !== lastPlace) return { entries, next: place };
  return { entries, next: lookedAt < LOOKED_AT_MAX ? undefined : (lastPlace ?? undefined) };
}

const PAGE = pageOf({
  keys: "at, id_ms, id_number",
  place: "id",
  among: `account_id = $1
      AND (id_ms, id_number) <= ($2::bigint, $3::bigint)
      AND ($4::boolean OR (id_ms, id_number) <> ($2::bigint, $3::bigint))
      AND ($5::timestamptz IS NULL OR (at, id_ms, id_number) < ($5::timestamptz, $6::bigint, $7::bigint))
      AND at <= coalesce($5::timestamptz, 'infinity')
      AND at >= coalesce($8::timestamptz, '-infinity') AND at < coalesce($9::timestamptz, 'infinity')`,
  shown: `($10::text[] IS NULL OR type || '/' || kind = ANY ($10::text[])) AND ($11::text IS NULL OR endpoint = $11)
      AND (kind = 'refund' OR at < coalesce($12::timestamptz, 'infinity'))`,
  limit: "$13",
});

const createArchivedHistory =
  (query: ArchiveQuery): ArchivedHistory =>
  async (accountId, filter, position, limit) => {
    const found = POSITION.exec(position);
    if (!found) throw badCursor();
    const [, kind = "", ms = "0", number = "0", atMs, shownMs = "0", shownNumber = "0"] = found;
    const values = [
      ...[accountId, ms, number, kind === "first"],
      ...[timeOf(atMs), shownMs, shownNumber],
      ...filterValues(filter),
      limit,
    ];
    const placeOf = (entry: LedgerEntry): string => `${entry.atMs} ${entry.streamId}`;
    const { entries, next } = await readPage(query, [PAGE, values], limit, placeOf);
    return { entries, next: next && `${kind} ${ms}-${number} ${next}` };
  };

const filterValues = ({ fromMs, toMs, wanted, endpoint, refundsToMs }: HistoryFilter): unknown[] => [
  timeOf(fromMs),
  timeOf(refundsToMs ?? toMs),
  wanted ?? null,
  endpoint ?? null,
  timeOf(toMs),
];

/** As PostgreSQL takes it: it has no year 0, and none beyond 9999 in this form. */
function timeOf(ms: number | string | undefined): string | null {
  if (ms === undefined) return null;
  const atMs = Number(ms);
  if (isMomentMs(atMs)) return new Date(atMs).toISOString();
  return atMs < 0 ? "-infinity" : "infinity";
}

const REQUESTS = `
  SELECT request_id, status, admitted_at, bound_at, finished_at, coalesce((
    SELECT sum(amount) > 0 FROM tollgate.ledger_entries entry WHERE entry.request_id = request.request_id AND kind = 'refund'
  ), false) AS refunded
  FROM tollgate.requests request WHERE request_id = ANY ($1::text[])`;

interface RequestRow {
  request_id: string;
  status: string;
  admitted_at: Date | null;
  bound_at: Date | null;
  finished_at: Date | null;
  refunded: boolean;
}

const createArchivedRequests =
  (query: ArchiveQuery): ArchivedRequests =>
  async (requestIds) => {
    const rows = await query<RequestRow>(REQUESTS, [requestIds]);
    return new Map(rows.map((row) => [row.request_id, ended(row)]));
  };

const ended = (row: RequestRow) => ({
  status: row.status as TaskView["status"],
  createdAtMs: row.admitted_at?.getTime(),
  boundAtMs: row.bound_at?.getTime(),
  finishedAtMs: row.finished_at?.getTime(),
  refunded: row.refunded,
});

// The index on `at` gives the order but for entries of the same millisecond.
const PAGE_OF_ALL = pageOf({
  keys: "at, id_ms, id_number, partition",
  place: "id || ' ' || partition",
  among: `($1::timestamptz IS NULL OR
        (at, id_ms, id_number, partition) < ($1::timestamptz, $2::bigint, $3::bigint, $4::int))
      AND at <= coalesce($1::timestamptz, 'infinity')
      AND at >= coalesce($5::timestamptz, '-infinity') AND at < coalesce($6::timestamptz, 'infinity')`,
  shown: "$7::text[] IS NULL OR type || '/' || kind = ANY ($7::text[])",
  limit: "$8",
});

const PLACE = /^(\d{1,15}) (\d{1,18})-(\d{1,18}) (\d{1,4})$/;

const createArchivedTransactions =
  (query: ArchiveQuery): ArchivedTransactions =>
  async ({ fromMs, toMs, wanted }, position, limit) => {
    const found = position === undefined ? undefined : PLACE.exec(position);
    if (found === null) throw badCursor();
    const [, atMs, ms = "0", number = "0", partition = "0"] = found ?? [];
    const values = [
      ...[timeOf(atMs), ms, number, partition],
      ...[timeOf(fromMs), timeOf(toMs), wanted ?? null, limit],
    ];
    const placeOf = (entry: LedgerEntry): string => `${entry.atMs} ${entry.streamId} ${entry.partition}`;
    return readPage(query, [PAGE_OF_ALL, values], limit, placeOf);
  };
