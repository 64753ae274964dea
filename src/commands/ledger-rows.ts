import { csvLine } from "../domain/csv.ts";
import { visible } from "../domain/operator-texts.ts";
import { detailsOf, kindOf, type LedgerEntry, transactionId } from "../records/ledger-entries.ts";
import { iso } from "./terminal.ts";

const COLUMNS = [
  "id",
  "account_id",
  "type",
  "amount",
  "balance_after",
  "endpoint",
  "reason",
  "reference",
  "task_id",
  "request_id",
  "key_id",
  "created_at",
  "by",
  "note",
  "kind",
  "package",
  "amount_paid",
  "currency",
  "of",
] as const;

type LedgerRow = Record<(typeof COLUMNS)[number], string | number>;
export const LEDGER_FORMATS = ["ndjson", "csv"] as const;
export type LedgerFormat = (typeof LEDGER_FORMATS)[number];

export const CSV_HEADER = `${COLUMNS.join(",")}\r\n`;

export function linesOf(entries: readonly LedgerEntry[], format: LedgerFormat): string {
  const line = (row: LedgerRow): string =>
    format === "csv" ? csvLine(COLUMNS.map((name) => row[name])) : `${visible(JSON.stringify(row))}\n`;
  return entries.map((entry) => line(ledgerRow(entry))).join("");
}

/** An entry as it is exported; `id` is unique in a store, and the same in each export. */
export function ledgerRow(entry: LedgerEntry): LedgerRow {
  const { package: name = "", amount_paid: paid = "", currency = "", of = "" } = detailsOf(entry);
  return {
    id: transactionId(entry),
    account_id: entry.accountId,
    type: entry.type,
    amount: entry.amount,
    balance_after: entry.balanceAfter,
    endpoint: entry.endpoint,
    reason: entry.reason,
    reference: entry.reference,
    task_id: entry.taskId,
    request_id: entry.requestId,
    key_id: entry.keyId,
    created_at: iso(entry.atMs) ?? "",
    by: entry.by,
    note: entry.note,
    kind: kindOf(entry),
    package: name,
    amount_paid: paid,
    currency,
    of,
  };
}
