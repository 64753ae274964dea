import { once } from "node:events";
import { Command, InvalidArgumentError, Option } from "commander";
import { transactionId } from "../core/transactions.ts";
import { OperatorError } from "../store/accounts.ts";
import {
  exportLedger,
  formatCursor,
  type LedgerCursor,
  type LedgerEntry,
  parseCursor,
  type Verification,
  verifyLedger,
} from "../store/ledger.ts";
import { command, iso, print, table, withRedis } from "./context.ts";

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
] as const;

type Row = Record<(typeof COLUMNS)[number], string | number>;

/** `tollgate ledger ...` */
export function ledgerCommand(): Command {
  return new Command("ledger")
    .description("the books: verify and export them")
    .addCommand(verifyCommand())
    .addCommand(exportCommand());
}

function verifyCommand(): Command {
  return command("verify", "compare balances, holds, slots and the ledger, while traffic goes on")
    .option("--account <id>", "of this account only")
    .action(async (flags: { account?: string; json?: boolean }) => {
      const result = await withRedis((redis) =>
        verifyLedger(redis, flags.account === undefined ? {} : { accountIds: [flags.account] }),
      );
      // A misspelt account must not look like sound books.
      if (flags.account !== undefined && result.accounts === 0 && result.ok) {
        throw new OperatorError(`there is no account ${flags.account}`);
      }
      print({ json: { ...result }, text: inWords(result), ok: result.ok }, flags);
    });
}

function inWords({ ok, accounts, entries, violations, unlisted = 0 }: Verification): string {
  const seen = `${accounts} accounts and ${entries} ledger entries`;
  if (ok) return `The books are right: ${seen}.`;
  const rows = violations.map((one) => [one.invariant, one.account_id, one.request_id, one.message]);
  const count = violations.length + unlisted;
  const more = unlisted > 0 ? `\n... and ${unlisted} more` : "";
  return `${table(["INVARIANT", "ACCOUNT", "REQUEST", "WHAT"], rows)}${more}\n\n${count} violations in ${seen}.`;
}

interface ExportFlags {
  account?: string;
  format: "ndjson" | "csv";
  after: LedgerCursor;
  json?: boolean;
}

function exportCommand(): Command {
  return command("export", "write ledger entries to standard output")
    .option("--account <id>", "of this account only")
    .addOption(
      new Option("--format <name>", "ndjson or csv; the cursor goes to standard error")
        .choices(["ndjson", "csv"])
        .default("ndjson"),
    )
    .option("--after <cursor>", "what came after an earlier export", cursorOf, new Map<number, string>())
    .action(async (flags: ExportFlags) => {
      const { after: cursor } = flags;
      await withRedis(async (redis) => {
        const entries = exportLedger(redis, cursor, flags.account);
        for await (const text of flags.json ? asObject(entries, cursor) : asLines(entries, flags.format)) {
          await write(text);
        }
      });
      if (!flags.json) process.stderr.write(`cursor: ${formatCursor(cursor)}\n`);
    });
}

function cursorOf(text: string): LedgerCursor {
  const cursor = parseCursor(text);
  if (!cursor) throw new InvalidArgumentError("It must be the cursor of an earlier export.");
  return cursor;
}

async function* asObject(entries: AsyncIterable<LedgerEntry>, cursor: LedgerCursor): AsyncGenerator<string> {
  let before = '{"entries":[';
  for await (const entry of entries) {
    yield before + JSON.stringify(row(entry));
    before = ",";
  }
  yield `${before === "," ? "" : before}],"cursor":${JSON.stringify(formatCursor(cursor))}}\n`;
}

async function* asLines(
  entries: AsyncIterable<LedgerEntry>,
  format: "ndjson" | "csv",
): AsyncGenerator<string> {
  if (format === "csv") yield `${COLUMNS.join(",")}\r\n`;
  for await (const entry of entries) {
    const fields = row(entry);
    yield format === "csv"
      ? `${COLUMNS.map((name) => cell(fields[name])).join(",")}\r\n`
      : `${JSON.stringify(fields)}\n`;
  }
}

/** RFC 4180. */
function cell(value: string | number): string {
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function row(entry: LedgerEntry): Row {
  return {
    id: transactionId(entry.partition, entry.streamId),
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
  };
}

/** Waits while the reader is slower than the store. */
async function write(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, "drain");
}
