import type { Redis } from "ioredis";
import { partsOf } from "../ledger/charges.ts";
import {
  addEntry,
  emptyFold,
  type Findings,
  FOLD_NUMBERS,
  type LedgerFold,
  type Report,
  reportInto,
} from "../ledger/fold.ts";
import { type Checkpoint, checkpointOf } from "../records/checkpoints.ts";
import {
  compareIds,
  LEDGER_PAGE,
  LEDGER_START,
  type LedgerEntry,
  readLedger,
} from "../records/ledger-entries.ts";
import { accountNames, archiveNames, partitionNames } from "../records/names.ts";
import { moneyOf } from "../records/packed-fields.ts";
import { readsOfMost, type Unread } from "../redis/partition-reads.ts";
import { listPages, many } from "../redis/pipelines.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import { archivableText, ENTRY_TEXTS, type EntryRow, entryOf } from "./rows.ts";
import type { ArchiveQuery } from "./tables.ts";
import { verifyRecords } from "./verify-records.ts";

const PAGE = 500;

export interface ArchiveVerification extends Findings {
  accounts: number;
  entries: number;
  keys: number;
  /** Compared with Redis; of the others the chain was checked. */
  in_redis: number;
  unread?: Unread;
}

interface Run {
  nodes: RedisNodes;
  query: ArchiveQuery;
  result: ArchiveVerification;
  report: Report;
  step(): Promise<void>;
}

interface Range {
  partition: number;
  after: string;
  until: string;
}

const NEWEST = `
  SELECT id FROM tollgate.ledger_entries WHERE partition = $1 ORDER BY id_ms DESC, id_number DESC LIMIT 1`;
const ENTRIES = `
  SELECT * FROM tollgate.ledger_entries
  WHERE partition = $1 AND (id_ms, id_number) > ($2, $3) AND (id_ms, id_number) <= ($4, $5)
  ORDER BY id_ms, id_number LIMIT ${PAGE}`;
const COUNT = "SELECT count(*) AS entries FROM tollgate.ledger_entries WHERE partition = $1";
const ENTRY = "SELECT * FROM tollgate.ledger_entries WHERE partition = $1 AND id = $2";

/** Compares entries, chains, accounts and keys with the store under traffic. Memory grows with a partition's accounts. @param options.rest after each page */
export async function verifyArchive(
  nodes: RedisNodes,
  query: ArchiveQuery,
  options: {
    seen?: (partitions: { done: number; all: number }, result: ArchiveVerification) => void;
    rest?: () => Promise<void>;
  } = {},
): Promise<ArchiveVerification> {
  const result: ArchiveVerification = {
    ok: true,
    accounts: 0,
    entries: 0,
    keys: 0,
    in_redis: 0,
    violations: [],
  };
  const partitions = await partitionsOf(nodes);
  const reads = readsOfMost(nodes);
  let done = 0;
  const step = async (): Promise<void> => {
    options.seen?.({ done, all: partitions }, result);
    await options.rest?.();
  };
  const run: Run = { nodes, query, result, report: reportInto(result), step };
  for (; done < partitions; done++) await reads.at(done, (redis) => verifyPartition(run, redis, done));
  await step();
  const unread = reads.unread();
  return unread ? { ...result, ok: false, unread } : result;
}

async function verifyPartition(run: Run, redis: Redis, partition: number): Promise<void> {
  const { query, result, report } = run;
  // The archive has at least the noted entries.
  const noted = (await redis.hget(archiveNames(partition).archive, "newest")) ?? LEDGER_START;
  const [newest] = await query<{ id: string }>(NEWEST, [partition]);
  const until = newest && compareIds(newest.id, noted) > 0 ? newest.id : noted;
  const [row] = await query<{ entries: string }>(COUNT, [partition]);
  const parts = partsOf(Number(row?.entries ?? 0));
  for (let part = 1; part < parts; part++) {
    const fold = emptyFold(part, parts);
    for await (const page of ledgerPages(run, partition, until))
      for (const entry of page) addEntry(fold, entry, report);
  }
  const fold = emptyFold(0, parts);
  const checkpoints = await createCheckpointCheck(run, redis, partition);
  for await (const page of ledgerPages(run, partition, until)) {
    const last = page.length < PAGE ? until : page.at(-1)!.streamId;
    await comparePage(run, redis, { partition, after: fold.lastId, until: last }, page);
    for (const entry of page) {
      addEntry(fold, entry, report);
      checkpoints.reached(entry, fold);
    }
    result.entries += page.length;
  }
  result.accounts += fold.accounts.size;
  checkpoints.end(until);
  await compareBalances(run, redis, partition, fold);
  result.keys += await verifyRecords(redis, partition, run);
}

/** The archive's entries up to one, which is in the last page or before it; that page may be empty. */
async function* ledgerPages({ query, step }: Run, partition: number, until: string) {
  let page: LedgerEntry[];
  let last = LEDGER_START;
  do {
    const rows = await query<EntryRow>(ENTRIES, [partition, ...last.split("-"), ...until.split("-")]);
    page = rows.map(entryOf);
    last = page.at(-1)?.streamId ?? last;
    yield page;
    await step();
  } while (page.length === PAGE);
}

/** The archive's entries up to a checkpoint must add up to it. */
async function createCheckpointCheck({ report, step }: Run, redis: Redis, partition: number) {
  const waiting = new Map<string, Checkpoint>();
  for await (const accountIds of listPages(redis, partitionNames(partition).accounts)) {
    const texts = await many<string | null, string>(redis, accountIds, (pipe, accountId) =>
      pipe.get(accountNames(partition, accountId).checkpoint),
    );
    for (const [at, text] of texts.entries()) {
      const checkpoint = checkpointOf(text ?? "");
      if (checkpoint) waiting.set(accountIds[at]!, { ...checkpoint, tail: [] });
    }
    await step();
  }

  return {
    reached({ accountId, streamId }: LedgerEntry, fold: LedgerFold): void {
      const checkpoint = waiting.get(accountId);
      if (checkpoint?.entry !== streamId) return;
      waiting.delete(accountId);
      const archived = fold.accounts.get(accountId)!;
      const differs = FOLD_NUMBERS.filter((name) => archived[name] !== checkpoint[name]);
      if (differs.length === 0) return;
      const what = differs
        .map((name) => `${name} ${archived[name]} by the archive, ${checkpoint[name]}`)
        .join(", ");
      report(
        "archive",
        accountId,
        `up to entry ${streamId}, which has left Redis: ${what} by its checkpoint`,
      );
    },
    /** Entries that left after the start are not judged here. */
    end(until: string): void {
      for (const [accountId, { entry }] of waiting)
        if (compareIds(entry, until) <= 0)
          report("archive", accountId, `entry ${entry} has left Redis, and is not in the archive`);
    },
  };
}

async function comparePage(
  run: Run,
  redis: Redis,
  range: Range,
  archived: readonly LedgerEntry[],
): Promise<void> {
  const { partition } = range;
  const stored = new Map<string, LedgerEntry>();
  for await (const page of pagesOf(redis, range)) for (const entry of page) stored.set(entry.streamId, entry);
  // After the entries: those that left meanwhile are before it.
  const cut = await firstOf(redis, partition);
  const known = new Set(archived.map(({ streamId }) => streamId));
  const suspects = [
    ...archived.filter((entry) => {
      const same = stored.get(entry.streamId);
      if (same) run.result.in_redis++;
      return same ? differingFields(entry, same).length > 0 : compareIds(entry.streamId, cut) >= 0;
    }),
    ...[...stored.values()].filter(({ streamId }) => !known.has(streamId)),
  ];
  for (const { streamId } of suspects) await judge(run, redis, partition, streamId);
}

async function* pagesOf(redis: Redis, { partition, after, until }: Range): AsyncGenerator<LedgerEntry[]> {
  let page: LedgerEntry[];
  let last = after;
  do {
    page = await readLedger(redis, partition, last, until);
    yield page;
    last = page.at(-1)?.streamId ?? last;
  } while (page.length === LEDGER_PAGE);
}

async function firstOf(redis: Redis, partition: number): Promise<string> {
  const [first] = await redis.xrange(partitionNames(partition).ledger, "-", "+", "COUNT", 1);
  return first?.[0] ?? LEDGER_START;
}

/** Reads a differing entry again: a failover or the copier may have changed it. */
async function judge({ query, report }: Run, redis: Redis, partition: number, id: string): Promise<void> {
  const [row] = await query<EntryRow>(ENTRY, [partition, id]);
  const [found] = await readLedger(redis, partition, before(id), id);
  const archived = row && entryOf(row);
  if (archived && found && differingFields(archived, found).length === 0) return;
  const { accountId, requestId } = (archived ?? found)!;
  if (archived && !found && compareIds(id, await firstOf(redis, partition)) < 0) return;
  const what =
    archived && found
      ? `differs: ${differenceOf(archived, found)}`
      : archived
        ? "is in the archive, and not in Redis"
        : "is in Redis, and not in the archive";
  report("archive", accountId, `entry ${id} ${what}`, requestId);
}

function before(id: string): string {
  const [ms = 0, number = 0] = id.split("-").map(Number);
  return number > 0 ? `${ms}-${number - 1}` : `${ms - 1}-18446744073709551615`;
}

const FIELDS = [
  ...(["accountId", "type", "amount", "balanceAfter"] as const),
  ...Object.values(ENTRY_TEXTS),
  "kind" as const,
  "atMs" as const,
];

const differingFields = (archived: LedgerEntry, stored: LedgerEntry) =>
  FIELDS.filter((name) => {
    const value = stored[name];
    return archived[name] !== (typeof value === "string" ? archivableText(value) : value);
  });

function differenceOf(archived: LedgerEntry, stored: LedgerEntry): string {
  const names = differingFields(archived, stored);
  return names.map((name) => `${name} ${archived[name]} in the archive, ${stored[name]} in Redis`).join(", ");
}

async function compareBalances(
  { report, step }: Run,
  redis: Redis,
  partition: number,
  fold: LedgerFold,
): Promise<void> {
  for await (const accountIds of listPages(redis, partitionNames(partition).accounts)) {
    const records = await many<string | null, string>(redis, accountIds, (pipe, accountId) =>
      pipe.hget(accountNames(partition, accountId).account, "money"),
    );
    for (const [at, money] of records.entries()) {
      const { balance, last_entry: last } = moneyOf(money);
      const accountId = accountIds[at]!;
      const { balance: archived = 0, last: folded = "" } = fold.accounts.get(accountId) ?? {};
      // Newer entries exist, or a failover lost it: its entries are the proof.
      if ((last ?? "") !== folded || Number(balance ?? 0) === archived) continue;
      report("archive", accountId, `has ${balance} credits in Redis, and ${archived} by the archive`);
    }
    await step();
  }
}
