import { kindOf, LEDGER_START, type LedgerEntry } from "../records/ledger-entries.ts";
import { partitionOf } from "../records/names.ts";
import { OperatorError } from "../records/operator-error.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { scriptsOf } from "../redis/script-runner.ts";
import { identityOf } from "./identity.ts";
import { ArchiveError } from "./migrations.ts";
import { copyKeys } from "./restore-keys.ts";
import {
  beginRestore,
  endRestore,
  type RunningTask,
  restoreAccounts,
  restoreEntries,
  restoreReferences,
  restoreTasks,
} from "./restoring.ts";
import { type EntryRow, entryOf } from "./rows.ts";
import type { ArchiveConnection, ArchiveQuery } from "./tables.ts";
import { trimLedger } from "./trim-ledger.ts";

/** Rows that are read and written at a time. */
const PAGE = 2000;
const PARTITIONS_MAX = 1024;
/** Entries that leave at a time: nobody else uses Redis. */
const SLICE = 1000;

export interface Restored {
  storeId: string;
  partitions: number;
  accounts: number;
  keys: number;
  entries: number;
  /** Tasks that are charged and had not ended. */
  tasks: number;
  /** What all accounts own, in credits. */
  balance: number;
  /** When the newest entry was made, Unix ms; undefined without any. */
  newestEntryMs: number | undefined;
  /** When a gateway last copied something to the archive, Unix ms. What came later and was not copied is missing. */
  copiedUntilMs: number | undefined;
}

interface TaskTimes {
  maxAgeMs: number;
  retentionMs: number;
}

interface RestoreOptions {
  /** Partitions of the store that the archive belongs to. */
  partitions: number;
  /** Entries that are older leave Redis at once, as they would with any archive. */
  keepMs: number;
  /** `tasks.max_age` and `tasks.retention` of the gateways: which charged tasks may not have ended. */
  tasks: TaskTimes;
  /** Called after each page of entries. */
  seen?: (entries: number) => void;
}

/**
 * Fills an empty Redis from the archive, as of one instant of it: accounts, keys, the ledger, references of grants, and tasks
 * that had not ended. Windows and days begin anew, and holds are gone: they were not copied.
 * @throws OperatorError for a Redis that is not empty, another number of partitions, or an archive whose ledger does not
 *   add up; ArchiveError for an archive that belongs to no store
 */
export function restoreStore(
  { transaction }: ArchiveConnection,
  nodes: RedisNodes,
  options: RestoreOptions,
): Promise<Restored> {
  return transaction(async (query) => {
    await query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY");
    // Redis is written to for minutes between two statements.
    await query("SET LOCAL idle_in_transaction_session_timeout = 0");
    const identity = await identityOf(query);
    if (identity === undefined)
      throw new ArchiveError(
        "it belongs to no store yet, so there is nothing to restore",
        "name the archive of the store that was lost in ARCHIVE_URL",
      );
    const { partitions } = options;
    await requirePartitions(query, partitions);
    await beginRestore(nodes, { id: identity.storeId, partitions });
    // Before the entries: the charge of a task that goes on stays in the ledger.
    const tasks = await copyTasks(query, nodes, options.tasks);
    const ledger = await copyEntries(query, nodes, options);
    const { accounts, balance } = await copyAccounts(query, nodes, partitions, ledger);
    const keys = await copyKeys(query, nodes, partitions);
    const [copied] = await query<{ at: Date | null }>(
      "SELECT max(copied_at) AS at FROM tollgate.ledger_rows",
    );
    await endRestore(nodes);
    const { entries, newestEntryMs } = ledger;
    const counts = { accounts, keys, entries, tasks, balance };
    return {
      storeId: identity.storeId,
      partitions,
      ...counts,
      newestEntryMs,
      copiedUntilMs: copied?.at?.getTime(),
    };
  });
}

/** @throws OperatorError if the store had another number of partitions: accounts would be looked for elsewhere */
async function requirePartitions(query: ArchiveQuery, partitions: number): Promise<void> {
  const known = await query<{ account_id: string; partition: number }>(
    "SELECT DISTINCT account_id, partition FROM tollgate.ledger_rows LIMIT 500",
  );
  const fits = (number: number): boolean =>
    known.every(({ account_id, partition }) => partitionOf(account_id, number) === partition);
  if (fits(partitions)) return;
  const possible = Array.from({ length: PARTITIONS_MAX }, (_, at) => at + 1).filter(fits);
  const right = possible.length === 1 ? `to ${possible[0]}` : "as the gateways of that store had it";
  throw new OperatorError(
    `the store of this archive had not ${partitions} partitions, and nothing is changed; set store.partitions ${right}`,
  );
}

/** What the entries of an account add up to. */
interface AccountSum {
  partition: number;
  balance: number;
  /** Charged without what was refunded. */
  used: number;
  last: string;
  /** When its first and its latest entry were made, Unix ms. */
  firstMs: number;
  latestMs: number;
}

interface CopiedLedger {
  entries: number;
  /** How many of them have left Redis again. */
  trimmed: number;
  newestEntryMs: number | undefined;
  sums: Map<string, AccountSum>;
}

async function copyEntries(
  query: ArchiveQuery,
  nodes: RedisNodes,
  { keepMs, seen = () => undefined }: RestoreOptions,
): Promise<CopiedLedger> {
  const ledger: CopiedLedger = { entries: 0, trimmed: 0, newestEntryMs: undefined, sums: new Map() };
  await query(
    "DECLARE entries NO SCROLL CURSOR FOR SELECT * FROM tollgate.ledger_entries ORDER BY partition, id_ms, id_number",
  );
  for (;;) {
    const rows = await query<EntryRow>(`FETCH ${PAGE} FROM entries`);
    if (rows.length === 0) break;
    const page = rows.map(entryOf);
    for (const entry of page) addTo(ledger, entry);
    await restoreEntries(nodes, page);
    await restoreReferences(
      nodes,
      page.filter(({ reference }) => reference !== ""),
    );
    for (const last of new Map(page.map((entry) => [entry.partition, entry])).values())
      ledger.trimmed += await trimTo(nodes, last, keepMs);
    seen(ledger.entries);
  }
  await query("CLOSE entries");
  return ledger;
}

/** Takes what is old enough out of a ledger up to an entry, which stays, so that Redis never holds all of it. */
async function trimTo(nodes: RedisNodes, last: LedgerEntry, keepMs: number): Promise<number> {
  const { partition } = last;
  const trimmed = await trimLedger(scriptsOf(nodes.of(partition)).run, {
    partition,
    archivedTo: last,
    keepMs,
    sliceMax: SLICE,
  });
  if (trimmed.outcome === "trimmed") return trimmed.entries;
  throw new OperatorError(
    `the ledger of partition ${partition} cannot be trimmed (${trimmed.outcome}); the restore is not complete, so empty Redis again`,
  );
}

/** @throws OperatorError for an entry that does not follow from the one before it of its account */
function addTo(ledger: CopiedLedger, entry: LedgerEntry): void {
  const { accountId, partition, streamId, previous, amount, balanceAfter, atMs } = entry;
  const sum = ledger.sums.get(accountId) ?? {
    partition,
    balance: 0,
    used: 0,
    last: "",
    firstMs: atMs,
    latestMs: 0,
  };
  if (previous !== sum.last || balanceAfter !== sum.balance + amount)
    throw new OperatorError(
      `the archive's ledger does not add up: entry ${streamId} of ${accountId} follows ${previous || "nothing"}, and the entry ` +
        `before it there is ${sum.last || LEDGER_START}; the restore is not complete, so empty Redis again`,
    );
  const kind = kindOf(entry);
  ledger.sums.set(accountId, {
    ...sum,
    balance: balanceAfter,
    used: sum.used - (kind === "charge" || kind === "refund" ? amount : 0),
    last: streamId,
    latestMs: Math.max(sum.latestMs, atMs),
  });
  ledger.entries++;
  ledger.newestEntryMs = Math.max(ledger.newestEntryMs ?? 0, atMs);
}

interface AccountRow {
  account_id: string;
  created_at: Date | null;
  settings: Record<string, string>;
}

/** Requests that went upstream: those that have ended, and charged ones that have not. */
const REQUESTS = `
  SELECT account_id, count(*)::int AS requests FROM (
    SELECT account_id, request_id FROM tollgate.requests WHERE ended_by IS DISTINCT FROM 'unsent'
    UNION SELECT account_id, request_id FROM tollgate.ledger_entries WHERE kind = 'charge' AND request_id IS NOT NULL
  ) sent GROUP BY account_id`;

async function copyAccounts(
  query: ArchiveQuery,
  nodes: RedisNodes,
  partitions: number,
  { sums }: CopiedLedger,
): Promise<{ accounts: number; balance: number }> {
  const counted = await query<{ account_id: string; requests: number }>(REQUESTS);
  const requests = new Map(counted.map((row) => [row.account_id, row.requests]));
  const known = await query<AccountRow>("SELECT account_id, created_at, settings FROM tollgate.accounts");
  const ids = new Set(known.map(({ account_id }) => account_id));
  // The entries of an account may be copied a moment before it.
  const unknown = [...sums.keys()].filter((id) => !ids.has(id));
  const rows = [...known, ...unknown.map((id) => ({ account_id: id, created_at: null, settings: {} }))];
  let balance = 0;
  for (let at = 0; at < rows.length; at += PAGE) {
    const page = rows.slice(at, at + PAGE).map(({ account_id: accountId, created_at, settings }) => {
      const sum = sums.get(accountId);
      balance += sum?.balance ?? 0;
      const createdAtMs = created_at?.getTime() ?? sum?.firstMs ?? 0;
      const record = {
        ...settings,
        balance: String(sum?.balance ?? 0),
        held: "0",
        total_used: String(sum?.used ?? 0),
        total_requests: String(requests.get(accountId) ?? 0),
        created_at: String(createdAtMs),
        // A gateway's journal may still have a charge that is among these entries: BIND refuses it as forgotten.
        ...(sum ? { last_entry: sum.last, collected_until: String(sum.latestMs) } : {}),
      };
      return { partition: partitionOf(accountId, partitions), accountId, record };
    });
    await restoreAccounts(nodes, page);
  }
  return { accounts: rows.length, balance };
}

/**
 * From when on a charge without an ended request is that of a running task. COLLECT deleted requests before there was an archive
 * after their retention, so an older charge may be that of a task that ended then. And no task is open for longer than
 * twice its maximum age; gateways were at work until their last copy, give or take a retention.
 */
const RUNNING_SINCE = `
  SELECT greatest(
    (SELECT since FROM tollgate.archive) - $1 * interval '1 ms',
    (SELECT max(copied_at) FROM tollgate.ledger_rows) - ($1 + 2 * $2) * interval '1 ms') AS since`;

const RUNNING = `
  DECLARE tasks NO SCROLL CURSOR FOR SELECT * FROM tollgate.ledger_entries charge
  WHERE kind = 'charge' AND request_id IS NOT NULL AND task_id IS NOT NULL AND key_id IS NOT NULL AND at >= $1
    AND NOT EXISTS (
      SELECT FROM tollgate.request_rows ended
      WHERE ended.request_id = charge.request_id AND ended.status IN ('completed', 'failed')
    )
    AND NOT EXISTS (
      SELECT FROM tollgate.ledger_entries refund WHERE refund.request_id = charge.request_id AND refund.kind = 'refund'
    )`;

async function copyTasks(
  query: ArchiveQuery,
  nodes: RedisNodes,
  { maxAgeMs, retentionMs }: TaskTimes,
): Promise<number> {
  let copied = 0;
  const [running] = await query<{ since: Date }>(RUNNING_SINCE, [retentionMs, maxAgeMs]);
  await query(RUNNING, [running?.since]);
  for (;;) {
    const rows = await query<EntryRow>(`FETCH ${PAGE} FROM tasks`);
    if (rows.length === 0) break;
    const tasks = rows.map(entryOf).map((entry): RunningTask => {
      const { partition, accountId, keyId, requestId, taskId, endpoint, amount, atMs } = entry;
      return { partition, accountId, keyId, requestId, taskId, endpoint, price: -amount, boundAtMs: atMs };
    });
    await restoreTasks(nodes, tasks);
    copied += tasks.length;
  }
  await query("CLOSE tasks");
  return copied;
}
