import path from "node:path";
import { type Command, InvalidArgumentError, Option } from "commander";
import { csvLine, visible } from "../domain/operator-texts.ts";
import { chargesWaitingIn } from "../durability/outbox/journal-files.ts";
import {
  completeSinceMs,
  exportLedger,
  formatCursor,
  type LedgerCursor,
  parseCursor,
} from "../ledger/export.ts";
import { verifyLedger } from "../ledger/verify.ts";
import type { Verification } from "../ledger/verify-run.ts";
import { requireAccount } from "../operations/accounts/accounts.ts";
import {
  detailsOf,
  type EntryDetails,
  kindOf,
  type LedgerEntry,
  transactionId,
} from "../records/ledger-entries.ts";
import { OperatorError } from "../records/operator-error.ts";
import { readsOfMost, type Unread } from "../redis/partition-reads.ts";
import type { RedisNodes } from "../redis/store-facts.ts";
import {
  type CursorState,
  LEDGER_FORMATS,
  type LedgerFormat,
  lockCursorFile,
  openOutput,
  readCursorFile,
  writeCursorFile,
} from "./ledger-cursor.ts";
import { command, fileName, group, pastMs } from "./options.ts";
import { findingsText, jsonList, note, noteUnread, numbered, print, writeOut } from "./output.ts";
import { ownConfig, withRedis } from "./redis.ts";
import { iso, startProgress } from "./terminal.ts";

/** A flush to disk may take a tenth of a second, and a page much less. */
const KEEP_EVERY_MS = 1000;

interface ExportFlags {
  account?: string;
  format: LedgerFormat;
  since?: number;
  until?: number;
  after?: LedgerCursor;
  cursorFile?: string;
  output?: string;
  header: boolean;
  json?: boolean;
}

/** Where entries go. `keep` makes what was written, and the cursor behind it, count. */
interface Sink {
  write(entries: readonly LedgerEntry[]): Promise<void>;
  keep(): Promise<void>;
  close?(): Promise<void>;
}

function exportCommand(): Command {
  return command("export", "write ledger entries, and go on later where it ended")
    .option("--account <id>", "of this account only")
    .addOption(
      new Option("--format <name>", "lines of JSON, or RFC 4180").choices(LEDGER_FORMATS).default("ndjson"),
    )
    .option("--since <when>", "posted at or after this: ISO 8601, or how long ago, such as 7d", pastMs)
    .option("--until <when>", "posted before this", pastMs)
    .option("--output <file>", "write here instead of standard output", fileName)
    .option("--cursor-file <file>", "keep the cursor here, and begin where it stands", fileName)
    .addOption(
      new Option("--after <cursor>", "what came after an earlier export, which printed this cursor")
        .argParser(cursorOf)
        .conflicts("cursorFile"),
    )
    .option("--no-header", "csv without its first line")
    .action(runExport);
}

async function runExport(flags: ExportFlags): Promise<void> {
  const { account = "", format, cursorFile } = flags;
  const unlock = cursorFile === undefined ? undefined : lockOf(cursorFile);
  const interruption = interruptible();
  try {
    const earlier = cursorFile === undefined ? undefined : readCursorFile(cursorFile, { account, format });
    const cursor: LedgerCursor = flags.after ?? earlier?.cursor ?? new Map();
    const state: CursorState = { cursor, account, format, output: earlier?.output };
    const exported = await withRedis((nodes) => exportTo(nodes, flags, state, interruption));
    if (exported.unread) noteUnread(exported.unread);
    noteMissing(flags, exported.completeSinceMs);
    report(flags, state.cursor, exported, interruption.signal);
  } finally {
    interruption.stop();
    unlock?.();
  }
}

function lockOf(cursorFile: string): () => void {
  try {
    return lockCursorFile(cursorFile);
  } catch (error) {
    return unwritable(error);
  }
}

interface Exported {
  count: number;
  unread: Unread | undefined;
  /** From when on Redis has all entries, Unix ms; 0 if it has all of them. */
  completeSinceMs: number;
}

/** Entries that were asked for may have left Redis. */
function noteMissing({ since = 0 }: ExportFlags, sinceMs: number): void {
  if (since >= sinceMs) return;
  note(`Redis has all entries from ${iso(sinceMs)} on; earlier ones have left it and are in the archive`);
}

async function exportTo(
  nodes: RedisNodes,
  flags: ExportFlags,
  state: CursorState,
  interruption: Interruption,
): Promise<Exported> {
  const { account, since: sinceMs, until: untilMs } = flags;
  if (account !== undefined) await requireAccount(nodes, account);
  const progress = startProgress(flags.output === undefined ? { output: process.stdout } : {});
  const reads = readsOfMost(nodes);
  const sink = await openSink(flags, state, reads.unread).catch(unwritable);
  let count = 0;
  /** False while the sink lacks entries before the cursor. */
  let whole = true;
  try {
    const selection = { accountId: account, sinceMs, untilMs };
    for await (const page of exportLedger(nodes, state.cursor, selection, reads)) {
      whole = false;
      await sink.write(page.entries).catch(unwritable);
      whole = true;
      count += page.entries.length;
      progress.show(`partition ${page.partition + 1} of ${page.partitions}: ${count} entries`);
      if (interruption.signal !== undefined) break;
    }
    whole = false;
    await sink.keep().catch(unwritable);
    return { count, unread: reads.unread(), completeSinceMs: await completeSinceMs(nodes, account, reads) };
  } catch (error) {
    // Redis has gone: what was written so far still counts, and need not come again.
    if (whole) await sink.keep();
    if (whole && flags.cursorFile === undefined && !flags.json) note(`cursor: ${formatCursor(state.cursor)}`);
    throw error;
  } finally {
    await sink.close?.();
    progress.done();
  }
}

/** Reports a failed write as such: other errors are attributed to Redis. */
function unwritable(error: unknown): never {
  if (error instanceof OperatorError) throw error;
  throw new OperatorError(`the export cannot be written (${error instanceof Error ? error.message : error})`);
}

interface Interruption {
  signal: "SIGINT" | "SIGTERM" | undefined;
  stop(): void;
}

/** The first Ctrl-C lets the page under way be finished; a second one ends the process, as usual. */
function interruptible(): Interruption {
  const names = ["SIGINT", "SIGTERM"] as const;
  const take = (signal: "SIGINT" | "SIGTERM"): void => {
    interruption.signal = signal;
    stop();
  };
  const stop = (): void => {
    for (const name of names) process.off(name, take);
  };
  const interruption: Interruption = { signal: undefined, stop };
  for (const name of names) process.on(name, take);
  return interruption;
}

/** How it ended, on standard error; on standard output only for a program that reads no entries there. */
function report(
  flags: ExportFlags,
  cursor: LedgerCursor,
  { count, unread, completeSinceMs: sinceMs }: Exported,
  signal: string | undefined,
): void {
  const { output, cursorFile } = flags;
  const at = formatCursor(cursor);
  if (signal !== undefined) {
    process.exitCode = signal === "SIGINT" ? 130 : 143;
    const how = cursorFile === undefined ? "give --after with the cursor" : "run the same command again";
    note(`interrupted after ${count} entries; to go on, ${how}`);
  }
  if (output !== undefined && flags.json)
    print(
      {
        json: { entries: count, output, cursor: at, unread, complete_since: iso(sinceMs || undefined) },
        text: "",
      },
      flags,
    );
  else if (flags.json) return;
  else if (cursorFile === undefined) note(`cursor: ${at}`);
  else
    note(
      `${count} entries written${output === undefined ? "" : ` to ${output}`}; the cursor is in ${cursorFile}`,
    );
}

async function openSink(
  flags: ExportFlags,
  state: CursorState,
  unread: () => Unread | undefined,
): Promise<Sink> {
  if (flags.output !== undefined) return fileSink(flags.output, flags, state);
  const inner = flags.json ? objectSink(state.cursor, unread) : linesSink(flags);
  return {
    ...inner,
    async keep() {
      await inner.keep();
      if (flags.cursorFile === undefined) return;
      // Only once the reader has taken the last byte from us: then the cursor cannot be ahead of it.
      await new Promise((resolve) => process.stdout.write("", resolve));
      await writeCursorFile(flags.cursorFile, state);
    },
  };
}

/** With a cursor file, what was written counts once both are on disk; the next run cuts off the rest, so nothing is lost or doubled. */
async function fileSink(
  output: string,
  { cursorFile, format, header }: ExportFlags,
  state: CursorState,
): Promise<Sink> {
  const { handle, bytes } = await openOutput(output, state);
  const written = { file: path.resolve(output), bytes };
  state.output = written;
  let keptMs = 0;
  const keep = async (): Promise<void> => {
    await handle.datasync();
    if (cursorFile !== undefined) await writeCursorFile(cursorFile, state);
    keptMs = performance.now();
  };
  const append = async (text: string): Promise<void> => {
    const { bytesWritten } = await handle.write(text, written.bytes);
    if (bytesWritten !== Buffer.byteLength(text))
      throw new OperatorError(`${output} cannot be written; is the disk full?`);
    written.bytes += bytesWritten;
  };
  // The cursor file now names the output, so that the next run continues it even if this one ends before its first page.
  await keep();
  if (bytes === 0 && header && format === "csv") await append(CSV_HEADER);
  return {
    async write(entries) {
      if (entries.length > 0) await append(linesOf(entries, format));
      if (performance.now() - keptMs >= KEEP_EVERY_MS) await keep();
    },
    keep,
    close: () => handle.close(),
  };
}

function linesSink({ format, header }: ExportFlags): Sink {
  let before = header && format === "csv" ? CSV_HEADER : "";
  return {
    async write(entries) {
      const text = before + linesOf(entries, format);
      before = "";
      await writeOut(text);
    },
    keep: () => writeOut(before),
  };
}

function objectSink(cursor: LedgerCursor, unread: () => Unread | undefined): Sink {
  const list = jsonList("entries");
  return {
    write: (entries) => list.write(entries.map(ledgerRow)),
    keep: () => list.end({ cursor: formatCursor(cursor), unread: unread() }),
  };
}

function cursorOf(text: string): LedgerCursor {
  const cursor = parseCursor(text);
  if (!cursor) throw new InvalidArgumentError("It must be the cursor of an earlier export.");
  return cursor;
}

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

const CSV_HEADER = `${NAMES.join(",")}\r\n`;

function linesOf(entries: readonly LedgerEntry[], format: LedgerFormat): string {
  const line = (row: LedgerRow): string =>
    format === "csv" ? csvLine(NAMES.map((name) => row[name])) : `${visible(JSON.stringify(row))}\n`;
  return entries.map((entry) => line(ledgerRow(entry))).join("");
}

export function ledgerRow(entry: LedgerEntry): LedgerRow {
  const details = detailsOf(entry);
  return Object.fromEntries(NAMES.map((name) => [name, COLUMNS[name](entry, details)])) as LedgerRow;
}

export const ledgerCommand = group("ledger", "the ledger: verify and export it", [
  verifyCommand,
  exportCommand,
]);

function verifyCommand(): Command {
  return command("verify", "compare balances, holds, slots and the ledger, while traffic goes on")
    .option("--account <id>", "of this account only")
    .action(async (flags: { account?: string; json?: boolean }) => {
      const progress = startProgress();
      const folder = ownConfig()?.store.journal;
      const result = await withRedis((nodes) =>
        verifyLedger(nodes, {
          here: folder === undefined ? undefined : { folder, waiting: () => chargesWaitingIn(folder) },
          accountIds: flags.account === undefined ? undefined : [flags.account],
          seen({ done, all }, { accounts, entries }) {
            progress.show(`partition ${done} of ${all}: ${accounts} accounts, ${entries} entries`);
          },
        }),
      ).finally(progress.done);
      // A misspelt account must not look like a sound ledger.
      if (flags.account !== undefined && result.accounts === 0 && result.ok) {
        throw new OperatorError(`there is no account ${flags.account}`);
      }
      const { violations, unread } = result;
      print({ json: { ...result }, text: inWords(result), ok: violations.length === 0, unread }, flags);
    });
}

function inWords(result: Verification): string {
  const { accounts, entries } = result;
  const seen = `${numbered(accounts, "account", "accounts")} and ${numbered(entries, "ledger entry", "ledger entries")}`;
  return findingsText(result, "ledger", seen);
}
