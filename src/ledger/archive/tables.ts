import type { ArchivePage } from "../../store/archive-source.ts";
import type { LedgerEntry } from "../../store/ledger-entries.ts";
import { type EntryRow, entryOf, insertAudit, insertChanged, insertEntries, insertRequests } from "./rows.ts";

/** Runs one statement; values are passed apart from it. */
export type ArchiveQuery = <Row extends object>(text: string, values?: readonly unknown[]) => Promise<Row[]>;

/** What tables are read and written through. */
export interface ArchiveConnection {
  query: ArchiveQuery;
  /** All or nothing; after an error it is not known which. */
  transaction<T>(work: (query: ArchiveQuery) => Promise<T>): Promise<T>;
}

/** Rows written, by kind. Those that were there before do not count. */
export interface Written {
  entry: number;
  request: number;
  account: number;
  key: number;
  audit: number;
}

/** The archive has lost rows: it was restored, or a standby took over. What it has is to be asked again. */
export class StaleArchiveError extends Error {
  override readonly name = "StaleArchiveError";
}

export type ArchiveTables = ReturnType<typeof createTables>;

/** The newest entry that counts of each partition, and how many forks the partition has had. */
const NEWEST = `
  SELECT e.*, coalesce(f.fork, 0) AS forks, p.partition
  FROM unnest($1::int[]) AS p(partition)
  LEFT JOIN LATERAL (
    SELECT * FROM tollgate.ledger_entries e WHERE e.partition = p.partition ORDER BY e.id_ms DESC, e.id_number DESC LIMIT 1
  ) e ON true
  LEFT JOIN LATERAL (SELECT max(fork) AS fork FROM tollgate.ledger_forks WHERE partition = p.partition) f ON true`;

const BEFORE = `
  SELECT * FROM tollgate.ledger_entries
  WHERE partition = $1 AND (id_ms, id_number) < ($2, $3) ORDER BY id_ms DESC, id_number DESC LIMIT $4`;

const COUNT_AFTER = `
  SELECT count(*)::int AS rows FROM tollgate.ledger_entries WHERE partition = $1 AND (id_ms, id_number) > ($2, $3)`;

/** The newest audit record of each partition. */
const NEWEST_AUDIT = `
  SELECT p.partition, a.id_ms || '-' || a.id_number AS id
  FROM unnest($1::int[]) AS p(partition)
  JOIN LATERAL (
    SELECT * FROM tollgate.audit a WHERE a.partition = p.partition ORDER BY a.id_ms DESC, a.id_number DESC LIMIT 1
  ) a ON true`;

/** Two processes that find the same fork write one row. */
const FORK = `
  INSERT INTO tollgate.ledger_forks (partition, fork, after, until) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`;

const KNOWN = `
  SELECT count(*)::int AS rows FROM unnest($1::int[], $2::text[]) AS w(partition, id)
  WHERE EXISTS (SELECT FROM tollgate.ledger_rows e WHERE e.partition = w.partition AND e.id = w.id)`;

/** What the copier reads and writes in the archive. INSERT and SELECT are all that it needs. */
export function createTables(archiveId: string, { query, transaction }: ArchiveConnection) {
  /** Of each partition, as of the last time it was asked. Rows carry it: what came before a fork stays apart. */
  const forks = new Map<number, number>();
  const forkOf = (partition: number): number => forks.get(partition) ?? 0;

  return {
    archiveId,

    /** The newest entry that counts of each of these partitions; those without any are left out. */
    async newest(partitions: readonly number[]): Promise<Map<number, LedgerEntry>> {
      const rows = await query<EntryRow & { forks: number }>(NEWEST, [partitions]);
      for (const row of rows) forks.set(row.partition, row.forks);
      return new Map(rows.flatMap((row) => (row.id === null ? [] : [[row.partition, entryOf(row)]])));
    },

    /** Id of the newest audit record of each of these partitions; those without any are left out. */
    async newestAudit(partitions: readonly number[]): Promise<Map<number, string>> {
      const rows = await query<{ partition: number; id: string }>(NEWEST_AUDIT, [partitions]);
      return new Map(rows.map(({ partition, id }) => [partition, id]));
    },

    /** Entries that count before one, newest first. */
    async entriesBefore(partition: number, id: string, most: number): Promise<LedgerEntry[]> {
      return (await query<EntryRow>(BEFORE, [partition, ...idParts(id), most])).map(entryOf);
    },

    /** Leaves what comes after an entry out of all views. @returns how many rows these are */
    hideAfter: (partition: number, after: string, newest: LedgerEntry): Promise<number> =>
      transaction(async (run) => {
        const [count] = await run<{ rows: number }>(COUNT_AFTER, [partition, ...idParts(after)]);
        await run(FORK, [partition, forkOf(partition) + 1, after, newest.streamId]);
        return count?.rows ?? 0;
      }),

    /** Writes all of these pages, once. @throws StaleArchiveError */
    async write(pages: readonly ArchivePage[]): Promise<Written> {
      const used = pages.filter(
        ({ entries, requests, changed, audit }) =>
          entries.length + requests.length + changed.length + audit.length > 0,
      );
      if (used.length === 0) return { entry: 0, request: 0, account: 0, key: 0, audit: 0 };
      return transaction(async (run) => {
        await requireNewest(run, used);
        return {
          entry: await insertEntries(
            run,
            used.flatMap(({ entries }) => entries),
            forkOf,
          ),
          request: await insertRequests(
            run,
            used.flatMap(({ requests }) => requests),
          ),
          ...(await insertChanged(run, used)),
          audit: await insertAudit(
            run,
            used.flatMap(({ audit }) => audit),
          ),
        };
      });
    },
  };
}

/** The archive still has what it had when these pages were read. */
async function requireNewest(run: ArchiveQuery, pages: readonly ArchivePage[]): Promise<void> {
  const known = pages.flatMap(({ position }) => position.newest ?? []);
  const values = [known.map(({ partition }) => partition), known.map(({ streamId }) => streamId)];
  const [found] = await run<{ rows: number }>(KNOWN, values);
  if (found?.rows !== known.length) throw new StaleArchiveError("the archive has lost rows");
}

/** The two numbers of a stream id, as the archive orders by them. */
const idParts = (id: string): string[] => id.split("-");
