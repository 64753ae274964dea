import { amountsPaid, type Sale } from "../ledger/sales.ts";
import { COLUMNS, emptyStatement, STATEMENT_NUMBERS, type Statement } from "../ledger/statement-sums.ts";
import {
  monthBounds,
  numbersOf,
  USAGE_COLUMNS,
  USAGE_COUNTS,
  type UsageRow,
  type UsageSelection,
} from "../ledger/usage.ts";
import type { ArchiveQuery } from "./tables.ts";

/** As PostgreSQL takes it: it has no year 0, and none beyond 9999 in this form. */
const dateOf = (day: string): string => (/^\d/.test(day) ? (day < "0001" ? "-infinity" : day) : "infinity");

export async function archivedUsage(
  query: ArchiveQuery,
  { accountId, from, to, by }: UsageSelection,
): Promise<UsageRow[]> {
  const columns = by.map((name) => USAGE_COLUMNS[name]);
  const shown = columns.map((name) => `${TEXT_OF[name]} AS ${name}`);
  // Byte order, as in Redis.
  const order = columns.map((name) => `${TEXT_OF[name]} COLLATE "C"`);
  const groups = columns.map((name) => TEXT_OF[name]);
  const rows = await query<Record<string, string | null>>(
    `SELECT ${[...shown, ...SUMS].join(", ")} FROM tollgate.usage_daily usage
     WHERE ($1::text IS NULL OR account_id = $1) AND ($2::date IS NULL OR usage.day >= $2) AND ($3::date IS NULL OR usage.day <= $3)
     ${columns.length === 0 ? "HAVING count(*) > 0" : `GROUP BY ${groups.join(", ")} ORDER BY ${order.join(", ")}`}`,
    [accountId ?? null, from === undefined ? null : dateOf(from), to === undefined ? null : dateOf(to)],
  );
  return rows.map((row) => ({
    ...Object.fromEntries(columns.map((name) => [name, row[name] ?? ""])),
    ...numbersOf(USAGE_COUNTS, row),
  }));
}

const TEXT_OF = {
  day: "usage.day::text",
  month: "to_char(usage.day, 'YYYY-MM')",
  account_id: "coalesce(account_id, '')",
  endpoint: "coalesce(endpoint, '')",
  key_id: "coalesce(key_id, '')",
} as const;

const SUMS = USAGE_COUNTS.map((name) => `sum(${name}) AS ${name}`);

const SPENDERS = `
  SELECT account_id, sum(-amount)::bigint AS credits FROM tollgate.ledger_entries
  WHERE kind IN ('charge', 'refund') AND at >= $1::date AT TIME ZONE 'UTC' AND at < ($2::date + 1) AT TIME ZONE 'UTC'
  GROUP BY account_id HAVING sum(-amount) > 0 ORDER BY credits DESC, account_id COLLATE "C" DESC LIMIT $3`;

/** Accounts that spent most in these days, both inclusive. */
export async function archivedSpenders(
  query: ArchiveQuery,
  { from, to }: { from: string; to: string },
  limit: number,
): Promise<{ accountId: string; amount: number }[]> {
  const rows = await query<{ account_id: string; credits: string }>(SPENDERS, [
    dateOf(from),
    dateOf(to),
    limit,
  ]);
  return rows.map((row) => ({ accountId: row.account_id, amount: Number(row.credits) }));
}

const SALES = `
  SELECT kind, coalesce(package, '') AS package, coalesce(currency, '') AS currency, count(*) AS grants,
    sum(amount) AS credits, sum(amount_paid)::text AS paid
  FROM tollgate.ledger_entries
  WHERE kind IN ('purchase', 'trial', 'goodwill') AND at >= $1::date AT TIME ZONE 'UTC' AND at < $2::date AT TIME ZONE 'UTC'
  GROUP BY 1, 2, 3 ORDER BY kind COLLATE "C", coalesce(currency, '') COLLATE "C", coalesce(package, '') COLLATE "C"`;

export async function archivedSales(query: ArchiveQuery, month: string): Promise<Sale[]> {
  const { first, next } = monthBounds(month);
  const rows = await query<Record<"kind" | "package" | "currency" | "grants" | "credits" | "paid", string>>(
    SALES,
    [dateOf(first), dateOf(next)],
  );
  return rows.map(({ kind, package: name, currency, grants, credits, paid }) => ({
    ...{ kind: kind as Sale["kind"], package: name, currency },
    ...{ grants: Number(grants), credits: Number(credits), amountPaid: paid ?? undefined },
  }));
}

type StatementRow = Record<(typeof STATEMENT_NUMBERS)[number], string> & {
  account_id: string;
  amounts_paid: Record<string, string>;
  is_this: boolean;
};

export async function archivedStatements(
  query: ArchiveQuery,
  accountIds: readonly string[],
  month: string,
): Promise<Map<string, Statement>> {
  const rows = await query<StatementRow>(
    `SELECT DISTINCT ON (account_id) *, month = $2::date AS is_this FROM tollgate.statements
     WHERE account_id = ANY ($1::text[]) AND month <= $2::date ORDER BY account_id, month DESC`,
    [accountIds, dateOf(monthBounds(month).first)],
  );
  return new Map(rows.map((row) => [row.account_id, statementOf(row)]));
}

const SUM = "coalesce(sum(amount)";
const OF_MONTH = "at >= $1::date AT TIME ZONE 'UTC'";
const SUMS_OF_KINDS = Object.entries(COLUMNS).map(
  ([kind, [name, sign]]) => `${sign} * ${SUM} FILTER (WHERE kind = '${kind}' AND ${OF_MONTH}), 0) AS ${name}`,
);

const TOTAL = `
  SELECT ${SUM} FILTER (WHERE NOT ${OF_MONTH}), 0) AS opening, ${SUM}, 0) AS closing, ${SUMS_OF_KINDS.join(", ")}
  FROM tollgate.ledger_entries WHERE at < $2::date AT TIME ZONE 'UTC'`;

export async function archivedTotal(query: ArchiveQuery, month: string): Promise<Statement> {
  const { first, next } = monthBounds(month);
  const [row] = await query<Record<(typeof STATEMENT_NUMBERS)[number], string>>(TOTAL, [
    dateOf(first),
    dateOf(next),
  ]);
  const sales = await archivedSales(query, month);
  return { ...numbersOf(STATEMENT_NUMBERS, row!), amounts_paid: amountsPaid(sales) };
}

function statementOf(row: StatementRow): Statement {
  if (!row.is_this) return emptyStatement(Number(row.closing));
  return { ...numbersOf(STATEMENT_NUMBERS, row), amounts_paid: row.amounts_paid };
}

export async function hasAccount(query: ArchiveQuery, accountId: string): Promise<boolean> {
  const [found] = await query<{ is_known: boolean }>(
    `SELECT EXISTS (SELECT FROM tollgate.account_versions WHERE account_id = $1)
       OR EXISTS (SELECT FROM tollgate.ledger_rows WHERE account_id = $1) AS is_known`,
    [accountId],
  );
  return found?.is_known ?? false;
}

/** Newest entry of all partitions, Unix ms; undefined if there is none. */
export async function newestEntryMs(query: ArchiveQuery): Promise<number | undefined> {
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

const LOST = `
  SELECT max(split_part(until, '-', 1)::bigint) AS ms FROM tollgate.ledger_gaps
  WHERE split_part(after, '-', 1)::bigint < $1 AND ($2::int IS NULL OR partition = $2)`;

/** As `LostUntilMs` of the ledger has it. */
export async function lostUntilMs(
  query: ArchiveQuery,
  beforeMs: number,
  partition?: number,
): Promise<number | undefined> {
  const [row] = await query<{ ms: string | null }>(LOST, [beforeMs, partition ?? null]);
  return row?.ms == null ? undefined : Number(row.ms);
}
