import { monthOf } from "../domain/moments.ts";
import { kindOf, LEDGER_START, type LedgerEntry } from "../records/ledger-entries.ts";
import { PARTITIONS_MAX, partitionOf } from "../records/names.ts";
import { OperatorError } from "../records/operator-error.ts";
import { countersText, moneyText } from "../records/packed-fields.ts";
import { scriptsOf } from "../redis/script-runner.ts";
import type { RedisNodes } from "../redis/store-facts.ts";
import { ENDPOINTS_SETTING, restoreEndpoints, webhooksOf } from "./archived-endpoints.ts";
import { identityOf } from "./identity.ts";
import { ArchiveError } from "./migrations.ts";
import {
  beginRestore,
  endRestore,
  type RestoredKey,
  type RunningTask,
  restoreAccounts,
  restoreEntries,
  restoreKeys,
  restoreReferences,
  restoreTasks,
} from "./restoring.ts";
import { type EntryRow, entryOf, type KeyRow } from "./rows.ts";
import type { ArchiveConnection, ArchiveQuery } from "./tables.ts";
import { trimLedger } from "./trimming.ts";

const PAGE = 2000;
/** Nobody else uses Redis meanwhile. */
const SLICE = 1000;

export interface Restored {
  storeId: string;
  partitions: number;
  accounts: number;
  keys: number;
  entries: number;
  tasks: number;
  balance: number;
  newestEntryMs: number | undefined;
  /** Later changes that were not copied are missing. */
  copiedUntilMs: number | undefined;
}

interface TaskTimes {
  maxAgeMs: number;
  retentionMs: number;
}

interface RestoreOptions {
  partitions: number;
  keepMs: number;
  /** Decide which charged tasks may still run. */
  tasks: TaskTimes;
  seen?: (entries: number) => void;
}

/** Fills an empty Redis from one snapshot; windows and days begin anew, holds are not restored. @throws OperatorError, ArchiveError */
export function restoreStore(
  { transaction }: ArchiveConnection,
  nodes: RedisNodes,
  options: RestoreOptions,
): Promise<Restored> {
  return transaction(async (query) => {
    await query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY");
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
    // Before the entries: the charge of a running task stays in the ledger.
    const tasks = await copyTasks(query, nodes, options.tasks);
    const ledger = await copyEntries(query, nodes, options);
    const { accounts, balance } = await copyAccounts(query, nodes, partitions, ledger);
    const keys = await copyKeys(query, nodes, partitions);
    const [copied] = await query<{ at: Date | null }>(
      "SELECT max(copied_at) AS at FROM tollgate.ledger_rows",
    );
    await endRestore(nodes);
    const { entries, newestEntryMs } = ledger;
    return {
      ...{ storeId: identity.storeId, partitions, accounts, keys, entries, tasks, balance },
      ...{ newestEntryMs, copiedUntilMs: copied?.at?.getTime() },
    };
  });
}

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

interface AccountSum {
  partition: number;
  balance: number;
  used: number;
  last: string;
  firstMs: number;
  latestMs: number;
}

interface CopiedLedger {
  entries: number;
  newestEntryMs: number | undefined;
  sums: Map<string, AccountSum>;
}

const ALL_ENTRIES = "SELECT * FROM tollgate.ledger_entries ORDER BY partition, id_ms, id_number";

async function copyEntries(
  query: ArchiveQuery,
  nodes: RedisNodes,
  { keepMs, seen = () => undefined }: RestoreOptions,
): Promise<CopiedLedger> {
  const ledger: CopiedLedger = { entries: 0, newestEntryMs: undefined, sums: new Map() };
  for await (const rows of pagesOf<EntryRow>(query, ALL_ENTRIES)) {
    const page = rows.map(entryOf);
    for (const entry of page) addTo(ledger, entry);
    await restoreEntries(nodes, page);
    await restoreReferences(
      nodes,
      page.filter(({ reference }) => reference !== ""),
    );
    for (const last of new Map(page.map((entry) => [entry.partition, entry])).values())
      await trimTo(nodes, last, keepMs);
    seen(ledger.entries);
  }
  return ledger;
}

/** By a cursor of this transaction, which has one at a time. */
async function* pagesOf<Row extends object>(
  query: ArchiveQuery,
  text: string,
  values: readonly unknown[] = [],
): AsyncGenerator<Row[]> {
  await query(`DECLARE found NO SCROLL CURSOR FOR ${text}`, values);
  for (;;) {
    const rows = await query<Row>(`FETCH ${PAGE} FROM found`);
    if (rows.length === 0) break;
    yield rows;
  }
  await query("CLOSE found");
}

/** Trims while copying, so that Redis never holds the whole ledger. */
async function trimTo(nodes: RedisNodes, last: LedgerEntry, keepMs: number): Promise<void> {
  const { partition } = last;
  const { outcome } = await trimLedger(scriptsOf(nodes.of(partition)).run, {
    partition,
    archivedTo: last,
    keepMs,
    sliceMax: SLICE,
  });
  if (outcome === "trimmed") return;
  throw new OperatorError(
    `the ledger of partition ${partition} cannot be trimmed (${outcome}); the restore is not complete, so empty Redis again`,
  );
}

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
  // Entries may be copied before their account.
  const unknown = [...sums.keys()].filter((id) => !ids.has(id));
  const rows = [...known, ...unknown.map((id) => ({ account_id: id, created_at: null, settings: {} }))];
  let balance = 0;
  for (let at = 0; at < rows.length; at += PAGE) {
    const page = rows.slice(at, at + PAGE).map(({ account_id: accountId, created_at, settings: all }) => {
      const { [ENDPOINTS_SETTING]: endpoints, ...others }: Record<string, string> = all;
      const webhooks = webhooksOf(endpoints);
      const settings = { ...others, ...(webhooks && { webhooks }) };
      const sum = sums.get(accountId);
      balance += sum?.balance ?? 0;
      const createdAtMs = created_at?.getTime() ?? sum?.firstMs ?? 0;
      const money = moneyText({
        ...settings,
        balance: String(sum?.balance ?? 0),
        total_used: String(sum?.used ?? 0),
        total_requests: String(requests.get(accountId) ?? 0),
        ...(sum && { last_entry: sum.last }),
      });
      const record = {
        ...settings,
        money,
        created_at: String(createdAtMs),
        // BIND refuses a charge from a journal that may be among these entries as forgotten.
        ...(sum && { collected_until: String(sum.latestMs) }),
      };
      return { partition: partitionOf(accountId, partitions), accountId, record, endpoints };
    });
    await restoreAccounts(nodes, page);
    const withEndpoints = page.flatMap(({ endpoints, ...account }) =>
      endpoints ? [{ ...account, endpoints }] : [],
    );
    await restoreEndpoints(nodes, withEndpoints);
  }
  return { accounts: rows.length, balance };
}

/** Later charges without an ended request are of running tasks: no task is open for longer than twice its maximum age. */
const RUNNING_SINCE = `
  SELECT greatest(
    (SELECT since FROM tollgate.archive) - $1 * interval '1 ms',
    (SELECT max(copied_at) FROM tollgate.ledger_rows) - ($1 + 2 * $2) * interval '1 ms') AS since`;

const RUNNING = `
  SELECT * FROM tollgate.ledger_entries charge
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
  for await (const rows of pagesOf<EntryRow>(query, RUNNING, [running?.since])) {
    const tasks = rows.map(entryOf).map((entry): RunningTask => {
      const { partition, accountId, keyId, requestId, taskId, endpoint, amount, atMs } = entry;
      return { partition, accountId, keyId, requestId, taskId, endpoint, price: -amount, boundAtMs: atMs };
    });
    await restoreTasks(nodes, tasks);
    copied += tasks.length;
  }
  return copied;
}

/** Requires restored accounts and running tasks. */
async function copyKeys(query: ArchiveQuery, nodes: RedisNodes, partitions: number): Promise<number> {
  const spent = await spentThisMonth(query);
  let copied = 0;
  for await (const rows of pagesOf<KeyRow>(query, "SELECT * FROM tollgate.api_keys")) {
    await restoreKeys(
      nodes,
      rows.map((row) => keyOf(row, partitions, spent)),
    );
    copied += rows.length;
  }
  return copied;
}

function keyOf(row: KeyRow, partitions: number, { month, byKey, firstOf }: Spent): RestoredKey {
  const { account_id, sha256, tier, limits, rotated_to } = row;
  const first = firstOf(row.key_id);
  const moment = (at: Date | null): string | null => at && String(at.getTime());
  const fields = {
    ...row.settings,
    ...limits,
    ...{ account_id, sha256, tier, rotated_to },
    created_at: moment(row.created_at),
    expires_at: moment(row.expires_at),
    revoked_at: moment(row.revoked_at),
    ...(first === row.key_id
      ? { month: String(month), counters: countersText({ spent: String(byKey.get(first) ?? 0) }) }
      : { spends_in: first }),
  };
  const record = Object.fromEntries(
    Object.entries(fields).flatMap(([name, value]) => (value === null ? [] : [[name, value]])),
  );
  return { partition: partitionOf(account_id, partitions), keyId: row.key_id, record };
}

interface Spent {
  month: number;
  /** Key: the first of the keys that replaced each other, because they share a cap. */
  byKey: ReadonlyMap<string, number>;
  firstOf(keyId: string): string;
}

const SPENT = `
  SELECT key_id, (-sum(amount))::bigint AS credits FROM tollgate.ledger_entries charge
  WHERE kind = 'charge' AND key_id IS NOT NULL AND at >= $1 AND coalesce((
    SELECT sum(refund.amount) FROM tollgate.ledger_entries refund
    WHERE refund.request_id = charge.request_id AND refund.kind = 'refund'), 0) <= 0
  GROUP BY key_id`;

async function spentThisMonth(query: ArchiveQuery): Promise<Spent> {
  const now = new Date();
  const began = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth()));
  const rows = await query<{ key_id: string; credits: string }>(SPENT, [began]);
  const replaced = await query<{ key_id: string; rotated_to: string }>(
    "SELECT key_id, rotated_to FROM tollgate.api_keys WHERE rotated_to IS NOT NULL",
  );
  const earlier = new Map(replaced.map(({ key_id, rotated_to }) => [rotated_to, key_id]));
  const firstOf = (keyId: string): string => {
    let first = keyId;
    for (let before = earlier.get(first); before !== undefined; before = earlier.get(first)) first = before;
    return first;
  };
  const byKey = new Map<string, number>();
  for (const { key_id, credits } of rows) {
    const first = firstOf(key_id);
    byKey.set(first, (byKey.get(first) ?? 0) + Number(credits));
  }
  return { month: monthOf(now.getTime()), byKey, firstOf };
}
