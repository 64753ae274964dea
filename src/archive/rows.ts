import { byLimit, LIMITS, type LimitName, TIER_LIMITS } from "../domain/limits.ts";
import { MOMENT_MS_MAX } from "../domain/moments.ts";
import type { AuditRecord } from "../operations/access/audit.ts";
import { detailsOf, isStoredKind, LEDGER_START, type LedgerEntry } from "../records/ledger-entries.ts";
import { ACCOUNT_FIELDS, KEY_FIELDS } from "../records/records.ts";
import type { ArchivePage } from "./archive-pages.ts";
import type { ChangedRecord, EndedRequest } from "./changed-records.ts";
import type { ArchiveQuery } from "./tables.ts";

export interface KeyRow {
  key_id: string;
  account_id: string;
  sha256: string;
  tier: string;
  /** Its own, as its record has them. */
  limits: Partial<Record<LimitName, string>>;
  created_at: Date | null;
  expires_at: Date | null;
  revoked_at: Date | null;
  rotated_to: string | null;
  settings: Record<string, string>;
}

/** Texts of an entry that may be empty, by their columns. */
export const ENTRY_TEXTS = {
  endpoint: "endpoint",
  reason: "reason",
  task_id: "taskId",
  request_id: "requestId",
  key_id: "keyId",
  reference: "reference",
  by: "by",
  note: "note",
  details: "details",
  previous: "previous",
} as const satisfies Record<string, keyof LedgerEntry>;
type TextColumn = keyof typeof ENTRY_TEXTS;
type TextField = (typeof ENTRY_TEXTS)[TextColumn];
const TEXTS = Object.entries(ENTRY_TEXTS) as [TextColumn, TextField][];

export interface EntryRow extends Record<TextColumn, string | null> {
  partition: number;
  id: string | null;
  account_id: string;
  type: string;
  amount: string;
  balance_after: string;
  kind: string;
  at: Date;
}

export const entryOf = (row: EntryRow): LedgerEntry => ({
  ...(Object.fromEntries(TEXTS.map(([column, field]) => [field, row[column] ?? ""])) as Record<
    TextField,
    string
  >),
  partition: row.partition,
  streamId: row.id ?? "",
  accountId: row.account_id,
  type: row.type,
  amount: Number(row.amount),
  balanceAfter: Number(row.balance_after),
  kind: isStoredKind(row.kind) ? row.kind : "",
  atMs: row.at.getTime(),
});

type Column<Item> = readonly [
  name: string,
  type: string,
  value: (item: Item) => string | number | boolean | null,
];

const text = (value: string | undefined): string | null =>
  value === undefined || value === "" ? null : archivableText(value);
function moment(ms: string | number | undefined): string | null {
  const atMs = archivableMs(ms);
  return atMs === undefined ? null : new Date(atMs).toISOString();
}

export const ACCOUNT_SETTINGS: readonly string[] = [
  ...["label", "metadata", "status", "revision", "limited", "alerts", "price_multiplier"],
  ...TIER_LIMITS.map(({ name }) => name),
];
const KEY_SETTINGS: readonly string[] = ["label", "revision", "restrictions", "fingerprint"];

const apartFrom = (fields: object, settings: readonly string[]): ReadonlySet<string> =>
  new Set(Object.keys(fields).filter((name) => !settings.includes(name)));
const ACCOUNT_FIELDS_APART = apartFrom(ACCOUNT_FIELDS, ACCOUNT_SETTINGS);
const KEY_FIELDS_APART = apartFrom(KEY_FIELDS, KEY_SETTINGS);

const otherFields = (record: object, apart: ReadonlySet<string>): string =>
  jsonOf(Object.fromEntries(Object.entries(record).filter(([name]) => !apart.has(name))));

const ENTRY_COLUMNS: readonly Column<LedgerEntry & { fork: number }>[] = [
  ["partition", "int", (entry) => entry.partition],
  ["id", "text", (entry) => entry.streamId],
  ["fork", "int", (entry) => entry.fork],
  ["account_id", "text", (entry) => entry.accountId],
  ["type", "text", (entry) => entry.type],
  ["amount", "bigint", (entry) => entry.amount],
  ["balance_after", "bigint", (entry) => entry.balanceAfter],
  ...TEXTS.map(([column, field]) => [column, "text", (entry: LedgerEntry) => text(entry[field])] as const),
  ["kind", "text", (entry) => text(entry.kind)],
  ["package", "text", (entry) => text(detailsOf(entry).package)],
  ["package_price", "numeric", (entry) => text(detailsOf(entry).package_price)],
  ["package_currency", "text", (entry) => text(detailsOf(entry).package_currency)],
  ["amount_paid", "numeric", (entry) => text(detailsOf(entry).amount_paid)],
  ["currency", "text", (entry) => text(detailsOf(entry).currency)],
  ["of_reference", "text", (entry) => text(detailsOf(entry).of)],
  ["at", "timestamptz", (entry) => moment(entry.atMs)],
];

const REQUEST_COLUMNS: readonly Column<EndedRequest>[] = [
  ["request_id", "text", ({ requestId }) => requestId],
  ["account_id", "text", ({ record }) => text(record.account_id)],
  ["key_id", "text", ({ record }) => text(record.key_id)],
  ["endpoint", "text", ({ record }) => text(record.endpoint)],
  ["price", "bigint", ({ record }) => text(record.price)],
  ["status", "text", ({ record }) => (record.state === "void" ? "void" : text(record.status))],
  ["ended_by", "text", ({ record }) => text(record.state === "void" ? record.reason : record.ended_by)],
  ["task_id", "text", ({ record }) => text(record.task_id)],
  ["is_uncollected", "boolean", ({ record }) => record.uncollected !== undefined],
  ["admitted_at", "timestamptz", ({ record }) => moment(record.admitted_at)],
  ["bound_at", "timestamptz", ({ record }) => moment(record.bound_at)],
  ["finished_at", "timestamptz", ({ record }) => moment(record.finished_at ?? record.void_at)],
];

type Changed<Kind> = Extract<ChangedRecord, { kind: Kind }> & {
  partition: number;
  readAtMs: number;
  version: number;
};

const ACCOUNT_COLUMNS: readonly Column<Changed<"account">>[] = [
  ["account_id", "text", ({ id }) => id],
  ["version", "bigint", ({ version }) => version],
  ["partition", "int", ({ partition }) => partition],
  ["created_at", "timestamptz", ({ record }) => moment(record.created_at)],
  ["settings", "jsonb", ({ record }) => otherFields(record, ACCOUNT_FIELDS_APART)],
  ["gone", "boolean", ({ record }) => record.money === undefined],
];

const KEY_COLUMNS: readonly Column<Changed<"key">>[] = [
  ["key_id", "text", ({ id }) => id],
  ["version", "bigint", ({ version }) => version],
  ["partition", "int", ({ partition }) => partition],
  ["account_id", "text", ({ record }) => record.account_id ?? ""],
  ["sha256", "text", ({ record }) => record.sha256 ?? ""],
  ["tier", "text", ({ record }) => record.tier ?? ""],
  ["limits", "jsonb", ({ record }) => jsonOf(byLimit(LIMITS, ({ name }) => record[name]))],
  ["created_at", "timestamptz", ({ record }) => moment(record.created_at)],
  ["expires_at", "timestamptz", ({ record }) => moment(record.expires_at)],
  ["revoked_at", "timestamptz", ({ record }) => moment(record.revoked_at)],
  ["rotated_to", "text", ({ record }) => text(record.rotated_to)],
  ["settings", "jsonb", ({ record }) => otherFields(record, KEY_FIELDS_APART)],
  ["gone", "boolean", ({ record }) => record.account_id === undefined],
];

/** Writes missing rows in one statement. @returns how many */
async function insert<Item>(
  run: ArchiveQuery,
  table: string,
  columns: readonly Column<Item>[],
  items: readonly Item[],
): Promise<number> {
  if (items.length === 0) return 0;
  const names = columns.map(([name]) => name).join(", ");
  const types = columns.map(([, type], at) => `$${at + 1}::${type}[]`).join(", ");
  const values = columns.map(([, , value]) => items.map(value));
  const [written] = await run<{ rows: number }>(
    `WITH written AS (
       INSERT INTO tollgate.${table} (${names}) SELECT * FROM unnest(${types}) ON CONFLICT DO NOTHING RETURNING 1
     ) SELECT count(*)::int AS rows FROM written`,
    values,
  );
  return written?.rows ?? 0;
}

const BATCH_COLUMNS: readonly Column<ArchivePage>[] = [
  ["partition", "int", ({ position }) => position.partition],
  ["generation", "text", ({ position }) => position.generation],
  ["number", "bigint", ({ next }) => next.batch],
];

const GAP_COLUMNS: readonly Column<ArchivePage>[] = [
  ["partition", "int", ({ position }) => position.partition],
  ["after", "text", ({ position }) => position.newest?.streamId ?? LEDGER_START],
  ["until", "text", ({ missingUntil }) => missingUntil ?? ""],
];

const auditPlace = ({ auditId }: AuditRecord): { partition: number; ms: string; number: string } => {
  const [, partition, id = ""] = auditId.split("_");
  const [ms = "", number = ""] = id.split("-");
  return { partition: Number(partition), ms, number };
};
const TOKEN = /^(tok_\S+) (.*)$/;

const AUDIT_COLUMNS: readonly Column<AuditRecord>[] = [
  ["id", "text", ({ auditId }) => auditId],
  ["partition", "int", (record) => auditPlace(record).partition],
  ["id_ms", "bigint", (record) => auditPlace(record).ms],
  ["id_number", "bigint", (record) => auditPlace(record).number],
  ["at", "timestamptz", ({ atMs }) => moment(atMs)],
  ["by", "text", ({ by }) => archivableText(by)],
  ["token_id", "text", ({ by }) => TOKEN.exec(by)?.[1] ?? null],
  ["label", "text", ({ by }) => text(TOKEN.exec(by)?.[2])],
  ["action", "text", ({ action }) => action],
  ["account_id", "text", ({ accountId }) => text(accountId)],
  ["target", "text", ({ target }) => target],
  ["request_id", "text", ({ requestId }) => text(requestId)],
  ["before", "jsonb", ({ before }) => jsonOf(before)],
  ["after", "jsonb", ({ after }) => jsonOf(after)],
];

export type Written = Record<"entry" | "request" | "account" | "key" | "audit", number>;

/** Writes what these pages have and the archive lacks. @returns how many rows of each kind */
export async function insertPages(run: ArchiveQuery, pages: readonly ArchivePage[]): Promise<Written> {
  const gaps = pages.filter(({ missingUntil, entries }) => missingUntil !== undefined && entries.length > 0);
  await insert(run, "batches", BATCH_COLUMNS, pages);
  await insert(run, "ledger_gaps", GAP_COLUMNS, gaps);
  const changed = pages.flatMap(({ changed: some, position: { partition }, readAtMs }) =>
    some.map((one) => ({ ...one, partition, readAtMs })),
  );
  const accounts = changed.filter((one) => one.kind === "account");
  const keys = changed.filter((one) => one.kind === "key");
  const entries = pages.flatMap((page) =>
    page.entries.map((entry) => ({ ...entry, fork: page.position.forks })),
  );
  const requests = pages.flatMap((page) => page.requests);
  const audit = pages.flatMap((page) => page.audit);
  return {
    entry: await insert(run, "ledger_rows", ENTRY_COLUMNS, entries),
    request: await insert(run, "request_rows", REQUEST_COLUMNS, requests),
    account: await insertVersions(run, "account", ACCOUNT_COLUMNS, accounts),
    key: await insertVersions(run, "api_key", KEY_COLUMNS, keys),
    audit: await insert(run, "audit", AUDIT_COLUMNS, audit),
  };
}

/** Version: the time of the read, or one more than the last, because a new server's clock may be behind. */
async function insertVersions<Item extends { id: string; readAtMs: number }>(
  run: ArchiveQuery,
  what: "account" | "api_key",
  columns: readonly Column<Item & { version: number }>[],
  items: readonly Item[],
): Promise<number> {
  if (items.length === 0) return 0;
  const [table, column] = [`${what}_versions`, columns[0]![0]];
  const rows = await run<{ id: string; version: string }>(
    `SELECT ${column} AS id, max(version) AS version FROM tollgate.${table}
     WHERE ${column} = ANY ($1::text[]) GROUP BY ${column}`,
    [items.map(({ id }) => id)],
  );
  const versions = new Map(rows.map(({ id, version }) => [id, Number(version)]));
  const newer = items.map((item) => ({
    ...item,
    version: Math.max(item.readAtMs, (versions.get(item.id) ?? 0) + 1),
  }));
  return insert(run, table, columns, newer);
}

/** Records are copied in a form that PostgreSQL accepts, so that no row stops the others. */

/** U+0000 and halves of surrogate pairs become U+FFFD: no text of PostgreSQL has them. */
export const archivableText = (text: string): string => text.toWellFormed().replaceAll("\0", "\uFFFD");

/** The nearest time from 1970 to 9999, Unix ms; undefined for invalid values. */
export function archivableMs(ms: string | number | undefined): number | undefined {
  const atMs = ms === undefined || ms === "" ? Number.NaN : Number(ms);
  return Number.isNaN(atMs) ? undefined : Math.min(Math.max(atMs, 0), MOMENT_MS_MAX);
}

const jsonOf = (value: unknown): string =>
  JSON.stringify(value, (_, item: unknown) => {
    if (typeof item === "string") return archivableText(item);
    if (typeof item !== "object" || item === null || Array.isArray(item)) return item;
    return Object.fromEntries(Object.entries(item).map(([name, one]) => [archivableText(name), one]));
  });
