import { LEDGER_START, type LedgerEntry } from "../records/ledger-entries.ts";
import { type ArchivedState, type ArchivePage, type ArchivePosition, hasRows } from "./archive-pages.ts";
import type { NamedPages } from "./changed-records.ts";
import { type EntryRow, entryOf, insertPages, type Written } from "./rows.ts";

export type ArchiveQuery = <Row extends object>(text: string, values?: readonly unknown[]) => Promise<Row[]>;

export interface ArchiveConnection {
  query: ArchiveQuery;
  transaction<T>(work: (query: ArchiveQuery) => Promise<T>): Promise<T>;
}

/** The archive lost rows, or another process wrote some. Read its state again. */
export class StaleArchiveError extends Error {
  override readonly name = "StaleArchiveError";
}

export type ArchiveTables = ReturnType<typeof createTables>;

const STATE = `
  SELECT e.*, coalesce(f.fork, 0) AS forks, a.id_ms || '-' || a.id_number AS audit, b.number::float8 AS batch, p.partition
  FROM unnest($1::int[]) AS p(partition)
  LEFT JOIN LATERAL (
    SELECT * FROM tollgate.ledger_entries e WHERE e.partition = p.partition ORDER BY e.id_ms DESC, e.id_number DESC LIMIT 1
  ) e ON true
  LEFT JOIN LATERAL (SELECT max(fork) AS fork FROM tollgate.ledger_forks WHERE partition = p.partition) f ON true
  CROSS JOIN LATERAL (
    SELECT coalesce(max(number), 0) AS number FROM tollgate.batches WHERE partition = p.partition
  ) b
  LEFT JOIN LATERAL (
    SELECT * FROM tollgate.audit a WHERE a.partition = p.partition ORDER BY a.id_ms DESC, a.id_number DESC LIMIT 1
  ) a ON true`;

/** One process at a time writes to a partition; the first number is the same in each version. */
const LOCK = `SELECT pg_advisory_xact_lock(703201904, p.partition) FROM unnest($1::int[]) AS p(partition)`;

const BEFORE = `
  SELECT * FROM tollgate.ledger_entries
  WHERE partition = $1 AND (id_ms, id_number) < ($2, $3) ORDER BY id_ms DESC, id_number DESC LIMIT $4`;

const COUNT_AFTER = `
  SELECT count(*)::int AS rows FROM tollgate.ledger_entries WHERE partition = $1 AND (id_ms, id_number) > ($2, $3)`;

const FORK = `
  INSERT INTO tollgate.ledger_forks (partition, fork, after, until) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`;

const listedIn = (table: string, column: string): string => `
  SELECT DISTINCT ${column} AS id FROM tollgate.${table} WHERE partition = $1 AND ${column} > $2 ORDER BY ${column} LIMIT $3`;
const LISTED = {
  account: listedIn("account_versions", "account_id"),
  key: listedIn("api_key_versions", "key_id"),
};
const LISTED_PAGE = 500;

/** Needs INSERT and SELECT only. */
export function createTables(archiveId: string, { query, transaction }: ArchiveConnection) {
  return {
    archiveId,

    state: (partitions: readonly number[]): Promise<Map<number, ArchivedState>> =>
      readState(query, partitions),

    async *listed(partition: number): NamedPages {
      for (const [kind, text] of Object.entries(LISTED)) {
        let last: string | undefined = "";
        while (last !== undefined) {
          const rows: { id: string }[] = await query(text, [partition, last, LISTED_PAGE]);
          yield rows.map(({ id }) => `${kind} ${id}`);
          last = rows.length < LISTED_PAGE ? undefined : rows.at(-1)?.id;
        }
      }
    },

    async entriesBefore(partition: number, id: string, most: number): Promise<LedgerEntry[]> {
      return (await query<EntryRow>(BEFORE, [partition, ...idParts(id), most])).map(entryOf);
    },

    /** Hides the rows after an entry from all views. @returns how many */
    hideAfter: (after: string, { partition, forks, newest }: ArchivePosition): Promise<number> =>
      transaction(async (run) => {
        const [count] = await run<{ rows: number }>(COUNT_AFTER, [partition, ...idParts(after)]);
        await run(FORK, [partition, forks + 1, after, newest?.streamId ?? after]);
        return count?.rows ?? 0;
      }),

    async write(pages: readonly ArchivePage[]): Promise<Written> {
      const used = pages.filter(hasRows);
      if (used.length === 0) return { entry: 0, request: 0, account: 0, key: 0, audit: 0 };
      return transaction(async (run) => {
        await requireUnchanged(
          run,
          used.map(({ position }) => position),
        );
        return insertPages(run, used);
      });
    },
  };
}

async function readState(
  query: ArchiveQuery,
  partitions: readonly number[],
): Promise<Map<number, ArchivedState>> {
  const rows = await query<EntryRow & { forks: number; audit: string | null; batch: number }>(STATE, [
    partitions,
  ]);
  return new Map(
    rows.map((row) => [
      row.partition,
      {
        newest: row.id === null ? undefined : entryOf(row),
        forks: row.forks,
        batch: row.batch,
        audit: row.audit ?? LEDGER_START,
      },
    ]),
  );
}

/** Locks the archive until the end of the transaction. @throws StaleArchiveError if it changed since these pages were read */
async function requireUnchanged(run: ArchiveQuery, positions: readonly ArchivePosition[]): Promise<void> {
  // A fixed order prevents deadlocks.
  const partitions = positions.map(({ partition }) => partition).sort((one, other) => one - other);
  await run(LOCK, [partitions]);
  const states = await readState(run, partitions);
  const isSame = ({ partition, newest, forks, batch }: ArchivePosition): boolean => {
    const state = states.get(partition);
    return state?.newest?.streamId === newest?.streamId && state?.forks === forks && state?.batch === batch;
  };
  if (!positions.every(isSame)) throw new StaleArchiveError("the archive has other rows than it had");
}

const idParts = (id: string): string[] => id.split("-");
