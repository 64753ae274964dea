import type { ArchivedTransactions } from "../operations/credits/all-transactions.ts";
import { badCursor } from "../records/cursors.ts";
import { type EntryRow, entryOf } from "./rows.ts";
import type { ArchiveQuery } from "./tables.ts";

const LOOKED_AT_MAX = 3000;
const ORDER = "at DESC, id_ms DESC, id_number DESC, partition DESC";

// The index on `at` gives the order but for entries of the same millisecond.
const PAGE = `
  WITH looked_at AS MATERIALIZED (
    SELECT * FROM tollgate.ledger_entries
    WHERE ($1::timestamptz IS NULL OR
        (at, id_ms, id_number, partition) < ($1::timestamptz, $2::bigint, $3::bigint, $4::int))
      AND at <= coalesce($1::timestamptz, 'infinity')
      AND at >= coalesce($5::timestamptz, '-infinity') AND at < coalesce($6::timestamptz, 'infinity')
    ORDER BY ${ORDER} LIMIT ${LOOKED_AT_MAX}
  ), shown AS (
    SELECT * FROM looked_at WHERE ($7::text[] IS NULL OR type || '/' || kind = ANY ($7::text[]))
    ORDER BY ${ORDER} LIMIT $8
  )
  SELECT shown.*, looked.* FROM (
    SELECT count(*)::int AS looked_at,
      (array_agg(extract(epoch FROM at) * 1000 || ' ' || id || ' ' || partition ORDER BY at, id_ms, id_number, partition))[1]
        AS last_place
    FROM looked_at
  ) looked LEFT JOIN shown ON true
  ORDER BY ${ORDER}`;

type PageRow = EntryRow & { looked_at: number; last_place: string | null };

/** A place: when, id, partition. */
const PLACE = /^(\d{1,15})(?:\.0*)? (\d{1,18})-(\d{1,18}) (\d{1,4})$/;

/** Transactions of all accounts. */
export const createArchivedTransactions =
  (query: ArchiveQuery): ArchivedTransactions =>
  async ({ fromMs, toMs, wanted }, position, limit) => {
    const found = position === undefined ? undefined : PLACE.exec(position);
    if (found === null) throw badCursor();
    const [, atMs, ms = "0", number = "0", partition = "0"] = found ?? [];
    const rows = await query<PageRow>(PAGE, [
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

const timeOf = (ms: number | string | undefined): string | null =>
  ms === undefined ? null : new Date(Number(ms)).toISOString();
