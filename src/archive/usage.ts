import {
  monthBounds,
  numbersOf,
  STATEMENT,
  type Statement,
  USAGE_COLUMNS,
  USAGE_COUNTS,
  type UsageRow,
  type UsageSelection,
} from "../ledger/usage.ts";
import type { ArchiveQuery } from "./tables.ts";

export async function archivedUsage(
  query: ArchiveQuery,
  { accountId, from, to, by }: UsageSelection,
): Promise<UsageRow[]> {
  const columns = by.map((name) => USAGE_COLUMNS[name]);
  const shown = columns.map((name) =>
    name === "day" ? "day::text AS day" : `coalesce(${name}, '') AS ${name}`,
  );
  // Byte order, as in Redis.
  const order = columns.map((name) => (name === "day" ? "usage.day" : `coalesce(${name}, '') COLLATE "C"`));
  const groups = columns.map((name) => (name === "day" ? "usage.day" : name));
  const rows = await query<Record<string, string | null>>(
    `SELECT ${[...shown, ...SUMS].join(", ")} FROM tollgate.usage_daily usage
     WHERE ($1::text IS NULL OR account_id = $1) AND ($2::date IS NULL OR usage.day >= $2) AND ($3::date IS NULL OR usage.day <= $3)
     ${columns.length === 0 ? "HAVING count(*) > 0" : `GROUP BY ${groups.join(", ")} ORDER BY ${order.join(", ")}`}`,
    [accountId ?? null, from ?? null, to ?? null],
  );
  return rows.map((row) => ({
    ...Object.fromEntries(columns.map((name) => [name, row[name] ?? ""])),
    ...numbersOf(USAGE_COUNTS, row),
  }));
}

const SUMS = USAGE_COUNTS.map((name) => `sum(${name}) AS ${name}`);

export async function archivedStatement(
  query: ArchiveQuery,
  accountId: string,
  month: string,
): Promise<Statement> {
  const { first } = monthBounds(month);
  const [row] = await query<Record<keyof Statement, string> & { is_this: boolean }>(
    `SELECT *, month = $2::date AS is_this FROM tollgate.statements
     WHERE account_id = $1 AND month <= $2::date ORDER BY month DESC LIMIT 1`,
    [accountId, first],
  );
  if (row?.is_this) return numbersOf(STATEMENT, row);
  return numbersOf(STATEMENT, { opening: row?.closing, closing: row?.closing });
}

export async function hasAccount(query: ArchiveQuery, accountId: string): Promise<boolean> {
  const [found] = await query<{ is_known: boolean }>(
    `SELECT EXISTS (SELECT FROM tollgate.account_versions WHERE account_id = $1)
       OR EXISTS (SELECT FROM tollgate.ledger_rows WHERE account_id = $1) AS is_known`,
    [accountId],
  );
  return found?.is_known ?? false;
}

const PARTITION = `
  SELECT partition FROM tollgate.account_versions WHERE account_id = $1
  UNION ALL SELECT partition FROM tollgate.ledger_rows WHERE account_id = $1 LIMIT 1`;

/** Newest entry, Unix ms, of an account's partition or of all; undefined if there is none. */
export async function newestEntryMs(query: ArchiveQuery, accountId?: string): Promise<number | undefined> {
  if (accountId !== undefined) {
    const [place] = await query<{ partition: number }>(PARTITION, [accountId]);
    return place && copiedUntilMs(query, place.partition);
  }
  const [row] = await query<{ at: Date | null }>("SELECT max(at) AS at FROM tollgate.ledger_rows");
  return row?.at?.getTime();
}

export async function copiedUntilMs(query: ArchiveQuery, partition: number): Promise<number | undefined> {
  const [row] = await query<{ at: Date }>(
    `SELECT at FROM tollgate.ledger_entries WHERE partition = $1 ORDER BY id_ms DESC, id_number DESC LIMIT 1`,
    [partition],
  );
  return row?.at.getTime();
}
