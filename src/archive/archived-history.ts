import type { ArchivedHistory, HistoryPage } from "../operations/credits/account-history.ts";
import type { ArchivedTransactions } from "../operations/credits/transactions.ts";
import type { ArchivedRequests } from "../operations/tasks/task-lists.ts";
import type { TaskView } from "../operations/tasks/task-view.ts";
import { badCursor } from "../records/cursors.ts";
import type { LedgerEntry } from "../records/ledger-entries.ts";
import type { HistoryFilter } from "../scripts/ledger.ts";
import { type EntryRow, entryOf } from "./rows.ts";
import type { ArchiveQuery } from "./tables.ts";

const LOOKED_AT_MAX = 3000;

// Positions "first" or "before" an entry; PostgreSQL's integers end at 2^63 - 1.
const POSITION = /^(first|before) (\d{1,18})-(\d{1,18})(?: (\d{1,14}) (\d{1,18})-(\d{1,18}))?$/;

const ORDER = "at DESC, id_ms DESC, id_number DESC";

const PAGE = `
  WITH looked_at AS MATERIALIZED (
    SELECT * FROM tollgate.ledger_entries
    WHERE account_id = $1
      AND (id_ms, id_number) <= ($2::bigint, $3::bigint)
      AND ($4::boolean OR (id_ms, id_number) <> ($2::bigint, $3::bigint))
      AND ($5::timestamptz IS NULL OR (at, id_ms, id_number) < ($5::timestamptz, $6::bigint, $7::bigint))
      AND at <= coalesce($5::timestamptz, 'infinity')
      AND at >= coalesce($8::timestamptz, '-infinity') AND at < coalesce($9::timestamptz, 'infinity')
    ORDER BY ${ORDER} LIMIT ${LOOKED_AT_MAX}
  ), shown AS (
    SELECT * FROM looked_at
    WHERE ($10::text[] IS NULL OR type || '/' || kind = ANY ($10::text[])) AND ($11::text IS NULL OR endpoint = $11)
      AND (kind = 'refund' OR at < coalesce($12::timestamptz, 'infinity'))
    ORDER BY ${ORDER} LIMIT $13
  )
  SELECT shown.*, looked.* FROM (
    SELECT count(*)::int AS looked_at, (array_agg(id ORDER BY at, id_ms, id_number))[1] AS last_id, min(at) AS last_at
    FROM looked_at
  ) looked LEFT JOIN shown ON true
  ORDER BY ${ORDER}`;

type PageRow = EntryRow & { looked_at: number; last_id: string | null; last_at: Date | null };

export const createArchivedHistory =
  (query: ArchiveQuery): ArchivedHistory =>
  async (accountId, filter, position, limit) => {
    const found = POSITION.exec(position);
    if (!found) throw badCursor();
    const [, kind = "", ms = "0", number = "0", atMs, shownMs = "0", shownNumber = "0"] = found;
    const rows = await query<PageRow>(PAGE, [
      ...[accountId, ms, number, kind === "first"],
      ...[timeOf(atMs), shownMs, shownNumber],
      ...filterValues(filter),
      limit,
    ]);
    const entries = rows.flatMap((row) => (row.id === null ? [] : [entryOf(row)]));
    const after = nextCursor(rows[0], entries, limit);
    return { entries, next: after && `${kind} ${ms}-${number} ${after}` };
  };

function nextCursor(
  looked: PageRow | undefined,
  entries: HistoryPage["entries"],
  limit: number,
): string | undefined {
  const last: LedgerEntry | undefined = entries.at(-1);
  if (entries.length === limit && last && last.streamId !== looked?.last_id)
    return `${last.atMs} ${last.streamId}`;
  if (!looked?.last_at || looked.looked_at < LOOKED_AT_MAX) return undefined;
  return `${looked.last_at.getTime()} ${looked.last_id}`;
}

const filterValues = ({ fromMs, toMs, wanted, endpoint, refundsToMs }: HistoryFilter): unknown[] => [
  timeOf(fromMs),
  timeOf(refundsToMs ?? toMs),
  wanted ?? null,
  endpoint ?? null,
  timeOf(toMs),
];

const timeOf = (ms: number | string | undefined): string | null =>
  ms === undefined ? null : new Date(Number(ms)).toISOString();

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

export const createArchivedRequests =
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

const ORDER_OF_ALL = "at DESC, id_ms DESC, id_number DESC, partition DESC";

// The index on `at` gives the order but for entries of the same millisecond.
const PAGE_OF_ALL = `
  WITH looked_at AS MATERIALIZED (
    SELECT * FROM tollgate.ledger_entries
    WHERE ($1::timestamptz IS NULL OR
        (at, id_ms, id_number, partition) < ($1::timestamptz, $2::bigint, $3::bigint, $4::int))
      AND at <= coalesce($1::timestamptz, 'infinity')
      AND at >= coalesce($5::timestamptz, '-infinity') AND at < coalesce($6::timestamptz, 'infinity')
    ORDER BY ${ORDER_OF_ALL} LIMIT ${LOOKED_AT_MAX}
  ), shown AS (
    SELECT * FROM looked_at WHERE ($7::text[] IS NULL OR type || '/' || kind = ANY ($7::text[]))
    ORDER BY ${ORDER_OF_ALL} LIMIT $8
  )
  SELECT shown.*, looked.* FROM (
    SELECT count(*)::int AS looked_at,
      (array_agg(extract(epoch FROM at) * 1000 || ' ' || id || ' ' || partition ORDER BY at, id_ms, id_number, partition))[1]
        AS last_place
    FROM looked_at
  ) looked LEFT JOIN shown ON true
  ORDER BY ${ORDER_OF_ALL}`;

type RowOfAll = EntryRow & { looked_at: number; last_place: string | null };

const PLACE = /^(\d{1,15})(?:\.0*)? (\d{1,18})-(\d{1,18}) (\d{1,4})$/;

/** Transactions of all accounts. */
export const createArchivedTransactions =
  (query: ArchiveQuery): ArchivedTransactions =>
  async ({ fromMs, toMs, wanted }, position, limit) => {
    const found = position === undefined ? undefined : PLACE.exec(position);
    if (found === null) throw badCursor();
    const [, atMs, ms = "0", number = "0", partition = "0"] = found ?? [];
    const rows = await query<RowOfAll>(PAGE_OF_ALL, [
      ...[timeOf(atMs), ms, number, partition],
      ...[timeOf(fromMs), timeOf(toMs), wanted ?? null, limit],
    ]);
    const entries = rows.flatMap((row) => (row.id === null ? [] : [entryOf(row)]));
    const last = entries.at(-1);
    const { looked_at: lookedAt = 0, last_place: lastPlace = null } = rows[0] ?? {};
    if (entries.length === limit && last)
      return { entries, next: `${last.atMs} ${last.streamId} ${last.partition}` };
    return { entries, next: lookedAt < LOOKED_AT_MAX ? undefined : (lastPlace ?? undefined) };
  };
