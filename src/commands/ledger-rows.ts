import { csvLine } from "../domain/csv.ts";
import { visible } from "../domain/operator-texts.ts";
import {
  detailsOf,
  type EntryDetails,
  kindOf,
  type LedgerEntry,
  transactionId,
} from "../records/ledger-entries.ts";
import { iso } from "./terminal.ts";

/** Columns of an export; `id` is unique in a store, and the same in each export. */
const COLUMNS = {
  id: transactionId,
  account_id: ({ accountId }) => accountId,
  type: ({ type }) => type,
  amount: ({ amount }) => amount,
  balance_after: ({ balanceAfter }) => balanceAfter,
  endpoint: ({ endpoint }) => endpoint,
  reason: ({ reason }) => reason,
  reference: ({ reference }) => reference,
  task_id: ({ taskId }) => taskId,
  request_id: ({ requestId }) => requestId,
  key_id: ({ keyId }) => keyId,
  created_at: ({ atMs }) => iso(atMs) ?? "",
  by: ({ by }) => by,
  note: ({ note }) => note,
  kind: kindOf,
  package: (_, details) => details.package ?? "",
  amount_paid: (_, details) => details.amount_paid ?? "",
  currency: (_, details) => details.currency ?? "",
  of: (_, details) => details.of ?? "",
} satisfies Record<string, (entry: LedgerEntry, details: EntryDetails) => string | number>;
const NAMES = Object.keys(COLUMNS) as (keyof typeof COLUMNS)[];

type LedgerRow = Record<keyof typeof COLUMNS, string | number>;

export const LEDGER_FORMATS = ["ndjson", "csv"] as const;
export type LedgerFormat = (typeof LEDGER_FORMATS)[number];

export const CSV_HEADER = `${NAMES.join(",")}\r\n`;

export function linesOf(entries: readonly LedgerEntry[], format: LedgerFormat): string {
  const line = (row: LedgerRow): string =>
    format === "csv" ? csvLine(NAMES.map((name) => row[name])) : `${visible(JSON.stringify(row))}\n`;
  return entries.map((entry) => line(ledgerRow(entry))).join("");
}

export function ledgerRow(entry: LedgerEntry): LedgerRow {
  const details = detailsOf(entry);
  return Object.fromEntries(NAMES.map((name) => [name, COLUMNS[name](entry, details)])) as LedgerRow;
}
