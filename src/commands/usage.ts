import { type Command, InvalidArgumentError, Option } from "commander";
import {
  archivedStatements,
  archivedUsage,
  copiedUntilMs,
  hasAccount,
  lostUntilMs,
  newestEntryMs,
} from "../archive/archived-usage.ts";
import type { ArchiveQuery } from "../archive/tables.ts";
import { calendarProblem, isMonth } from "../domain/moments.ts";
import { csvLine } from "../domain/operator-texts.ts";
import { endOfDayMs } from "../ledger/account-usage.ts";
import { emptyStatement, STATEMENT_NUMBERS, type Statement } from "../ledger/statement-sums.ts";
import { readStatement } from "../ledger/statements.ts";
import {
  dayStartMs,
  monthBounds,
  totalOf,
  USAGE_COLUMNS,
  USAGE_COUNTS,
  type UsageGroup,
  type UsageSelection,
} from "../ledger/usage.ts";
import { usageInRedis } from "../ledger/usage-redis.ts";
import { requireAccount } from "../operations/accounts/accounts.ts";
import { OperatorError } from "../records/operator-error.ts";
import { placeOfAccount } from "../redis/store-facts.ts";
import { hasArchive, withOwnArchive } from "./local-archive.ts";
import { command, dayOption } from "./options.ts";
import { note, noteUnread, print, writeOut } from "./output.ts";
import { requireConfig, withRedis } from "./redis.ts";
import { iso, table } from "./terminal.ts";

const GROUPS = Object.keys(USAGE_COLUMNS) as UsageGroup[];

interface Flags {
  format: "table" | "csv";
  json?: boolean;
}

interface UsageFlags extends Flags {
  account?: string;
  from?: string;
  to?: string;
  by: UsageGroup[];
}

interface Source {
  from: "archive" | "redis";
  /** Of the archive: when its newest entry was made. */
  archived_until?: string | undefined;
  /** From when on it has all ledger entries; left out if it has all that were asked for. */
  entries_since?: string | undefined;
  /** Of Redis: from when on it has all ended tasks. */
  ended_since?: string | undefined;
}

const formatOption = (): Option =>
  new Option("--format <name>", "for people, or RFC 4180").choices(["table", "csv"]).default("table");

export function usageCommand(): Command {
  return command("usage", "requests, credits and refunds, from the archive if there is one, else from Redis")
    .option("--account <id>", "of this account only")
    .option("--from <day>", "the first UTC day, such as 2026-10-01", dayOption)
    .option("--to <day>", "the last UTC day, itself included", dayOption)
    .option("--by <columns>", `what lines are by: ${GROUPS.join(", ")}, with commas between`, groupsOf, [
      "day",
    ])
    .addOption(formatOption())
    .action(async (flags: UsageFlags) => {
      if (flags.from !== undefined && flags.to !== undefined && flags.from > flags.to)
        throw new OperatorError(`--from ${flags.from} comes after --to ${flags.to}`);
      const { account: accountId, from, to, by } = flags;
      const { rows, source, unread } = await readUsage({ accountId, from, to, by });
      const columns = [...by.map((name) => USAGE_COLUMNS[name]), ...USAGE_COUNTS];
      const lines = rows.map((row) => columns.map((name) => row[name] ?? ""));
      const total = totalOf(rows);
      const words = by.length === 0 || rows.length < 2 ? [] : [by.map((_, at) => (at === 0 ? "total" : ""))];
      const totals = words.map((cells) => [...cells, ...USAGE_COUNTS.map((name) => total[name])]);
      await show(flags, {
        json: { usage: rows, total, source, unread },
        columns,
        lines,
        text: (shown) => (rows.length === 0 ? "No usage." : shown([...lines, ...totals])),
      });
      says(source, flags);
      if (unread) noteUnread(unread);
    });
}

export function statementCommand(): Command {
  return command(
    "statement",
    "an account's month: opening, what was sold and given, charges, refunds, adjustments, reversals, closing",
  )
    .argument("<account>", "account id")
    .argument("<month>", "a UTC month, such as 2026-10", monthOf)
    .addOption(formatOption())
    .action(async (accountId: string, month: string, flags: Flags) => {
      const { statement, source } = await statementOf(accountId, month);
      const columns = ["account_id", "month", ...STATEMENT_NUMBERS, "amounts_paid"];
      const lines = [
        [accountId, month, ...STATEMENT_NUMBERS.map((name) => statement[name]), paidText(statement)],
      ];
      await show(flags, {
        json: { account_id: accountId, month, ...statement, source },
        columns,
        lines,
        text: (shown) => shown(lines),
      });
      says(source, flags);
    });
}

/** Such as `USD 99.90 EUR 9.90`. */
const paidText = ({ amounts_paid: paid }: Statement): string => Object.entries(paid).flat().join(" ");

interface Shown {
  json: Record<string, unknown>;
  columns: readonly string[];
  lines: readonly (readonly (string | number)[])[];
  /** For people. @param shown a table of these lines */
  text(shown: (lines: readonly (readonly unknown[])[]) => string): string;
}

async function show(flags: Flags, { json, columns, lines, text }: Shown): Promise<void> {
  if (!flags.json && flags.format === "csv")
    return writeOut(`${columns.join(",")}\r\n${lines.map(csvLine).join("")}`);
  const headings = columns.map((name) => name.toUpperCase().replaceAll("_", " "));
  const inTable = (rows: readonly (readonly unknown[])[]): string =>
    table(headings, rows, { gives: ["ENDPOINT", "KEY ID"] });
  print({ json, text: text(inTable) }, flags);
}

function says(source: Source, flags: Flags): void {
  if (flags.json) return;
  const { from, archived_until: until, entries_since: since, ended_since: ended } = source;
  if (from === "archive") {
    const lost = since ? `; entries before ${since} are lost` : "";
    note(
      until
        ? `From the archive; its newest entry is of ${until}${lost}.`
        : "From the archive, which is empty.",
    );
    return;
  }
  const entries = since
    ? `ledger entries before ${since} have left it for the archive: set ARCHIVE_URL`
    : "it has all of these ledger entries";
  const tasks = ended ? `; completed and failed tasks since ${ended}` : "";
  note(`From Redis; ${entries}${tasks}.`);
}

async function readUsage(selection: UsageSelection) {
  const { accountId, from, to } = selection;
  if (hasArchive())
    return withOwnArchive(async (query, nodes) => {
      if (accountId !== undefined) await requireArchived(query, accountId);
      const partition =
        accountId === undefined ? undefined : (await placeOfAccount(nodes, accountId)).partition;
      const lostMs = (await lostUntilMs(query, endOfDayMs(to), partition)) ?? 0;
      const isLost = lostMs > 0 && (from === undefined || lostMs >= dayStartMs(from));
      const entries_since = isLost ? iso(lostMs + 1) : undefined;
      const source = { ...(await archiveSource(query, partition)), entries_since };
      return { rows: await archivedUsage(query, selection), source, unread: undefined };
    });
  const { retentionMs } = requireConfig().tasks;
  const found = await withRedis(async (nodes) => {
    if (accountId !== undefined) await requireAccount(nodes, accountId);
    return usageInRedis(nodes, selection);
  });
  const { rows, entriesSinceMs, unread } = found;
  const reach = { entries_since: iso(entriesSinceMs), ended_since: iso(Date.now() - retentionMs) };
  return { rows, source: { from: "redis", ...reach } as const, unread };
}

async function statementOf(
  accountId: string,
  month: string,
): Promise<{ statement: Statement; source: Source }> {
  if (hasArchive())
    return withOwnArchive(async (query, nodes) => {
      await requireArchived(query, accountId);
      const found = await archivedStatements(query, [accountId], month);
      const statement = found.get(accountId) ?? emptyStatement(0);
      const { partition } = await placeOfAccount(nodes, accountId);
      const lostMs = await lostUntilMs(query, dayStartMs(monthBounds(month).next), partition);
      const entries_since = lostMs === undefined ? undefined : iso(lostMs + 1);
      return { statement, source: { ...(await archiveSource(query, partition)), entries_since } };
    });
  const { statement, sinceMs } = await withRedis((nodes) =>
    readStatement(nodes, accountId, month, undefined, Number.POSITIVE_INFINITY),
  );
  return { statement, source: { from: "redis", entries_since: iso(sinceMs) } };
}

async function archiveSource(query: ArchiveQuery, partition: number | undefined): Promise<Source> {
  const untilMs = partition === undefined ? newestEntryMs(query) : copiedUntilMs(query, partition);
  return { from: "archive", archived_until: iso(await untilMs) };
}

/** @throws OperatorError for an account that the archive does not know */
async function requireArchived(query: ArchiveQuery, accountId: string): Promise<void> {
  if (!(await hasAccount(query, accountId)))
    throw new OperatorError(`the archive has no account ${accountId}`);
}

function groupsOf(text: string): UsageGroup[] {
  const names = text.split(",").map((name) => name.trim());
  const groups = names.flatMap((name) => GROUPS.find((group) => group === name) ?? []);
  if (groups.length === names.length && new Set(groups).size === groups.length) return groups;
  throw new InvalidArgumentError(`It must be some of ${GROUPS.join(", ")}, each once, with commas between.`);
}

function monthOf(text: string): string {
  if (isMonth(text)) return text;
  const problem = calendarProblem(text);
  throw new InvalidArgumentError(`It must be a month such as 2026-10${problem ? `; ${problem}` : ""}.`);
}
