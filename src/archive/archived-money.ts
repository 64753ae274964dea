import { CLOCK_SLACK_MS, type FindArchivedCharges } from "../ledger/corrections.ts";
import type { ReadArchived } from "../operations/credits/references.ts";
import type { FindArchivedCharge } from "../operations/credits/refunds.ts";
import type { FindArchivedEntry } from "../operations/credits/transactions.ts";
import { readCheckpoint, readCut } from "../records/checkpoints.ts";
import {
  compareIds,
  LEDGER_START,
  type LedgerEntry,
  ledgerEntry,
  RECLAIM,
} from "../records/ledger-entries.ts";
import { partitionNames, partitionOf } from "../records/names.ts";
import { manyByNode } from "../redis/pipelines.ts";
import { partitionsOf, type RedisNodes } from "../redis/store-facts.ts";
import { connectArchive } from "./archive-connection.ts";
import { isSameEntry } from "./archive-pages.ts";
import { archiveReason } from "./archive-reasons.ts";
import { identifyFor } from "./identity.ts";
import { ArchiveError } from "./migrations.ts";
import { type EntryRow, entryOf } from "./rows.ts";
import type { ArchiveQuery } from "./tables.ts";

const OF_REFERENCE = "SELECT * FROM tollgate.ledger_entries WHERE account_id = $1 AND reference = $2 LIMIT 1";

const OF_ID = "SELECT * FROM tollgate.ledger_entries WHERE partition = $1 AND id_ms = $2 AND id_number = $3";

const OF_TASK = `
  SELECT e.*, (
    SELECT admitted_at FROM tollgate.request_rows r WHERE r.request_id = e.request_id AND r.admitted_at IS NOT NULL LIMIT 1
  ) AS admitted_at
  FROM tollgate.ledger_entries e
  WHERE e.request_id = $1 OR e.request_id = (
    SELECT request_id FROM tollgate.ledger_entries WHERE task_id = $1 AND kind = 'charge' ORDER BY at DESC LIMIT 1
  )`;

/** A price is in the details where the amount is another, or a list begins at a time; what is too much is left out later. */
const OF_PRICES = `
  SELECT e.*, coalesce((
    SELECT sum(r.amount) FROM tollgate.ledger_entries r
    WHERE r.request_id = e.request_id AND r.partition = e.partition AND r.kind = 'refund'
  ), 0) > 0 AS is_refunded
  FROM tollgate.ledger_entries e
  WHERE e.partition = $1 AND e.id_ms >= $2 AND e.at >= $3 AND e.at < $4 AND e.kind = 'charge' AND EXISTS (
    SELECT FROM unnest($5::text[], $6::bigint[]) AS wrong(endpoint, price)
    WHERE e.endpoint = wrong.endpoint
      AND (e.amount = -wrong.price OR starts_with(e.details, '{"list_price":' || wrong.price || ','))
  )
  ORDER BY e.id_ms, e.id_number`;

interface ChargeRow extends EntryRow {
  kind: string;
  admitted_at: Date | null;
}

/** Copying and trimming during a read make the archive look behind. */
const READS_MAX = 3;

/** Look-ups that decide about money: answered only if archive and Redis together are complete. */
export function moneyLookUps(url: string) {
  const readArchived: ReadArchived = async (nodes, accountId, reference) => {
    const partition = partitionOf(accountId, await partitionsOf(nodes));
    return inSnapshot(url, nodes, partition, async (query) => {
      await requireComplete(nodes, query, { partition, accountId });
      const [row] = await query<EntryRow>(OF_REFERENCE, [accountId, reference]);
      return row && entryOf(row);
    });
  };
  const findCharge: FindArchivedCharge = (nodes, id) =>
    inSnapshot(url, nodes, undefined, async (query) => {
      const rows = await query<ChargeRow>(OF_TASK, [id]);
      const charge = rows.find(({ kind }) => kind === "charge");
      if (!charge) return requireReach(nodes, query).then(() => undefined);
      const found = { ...entryOf(charge), admittedMs: charge.admitted_at?.getTime() };
      const archivedTo = await requireComplete(nodes, query, found);
      const isRefunded = rows.some(({ kind }) => kind === "refund");
      return {
        charge: found,
        isRefunded,
        isChargedAgain: rows.some(({ type }) => type === RECLAIM),
        archivedTo,
      };
    });
  const findEntry: FindArchivedEntry = (nodes, { partition, streamId }) =>
    inSnapshot(url, nodes, partition, async (query) => {
      const [row] = await query<EntryRow>(OF_ID, [partition, ...streamId.split("-")]);
      return row && entryOf(row);
    });
  const findCharges: FindArchivedCharges = (nodes, partition, { fromMs, toMs, charged }) =>
    inSnapshot(url, nodes, partition, async (query) => {
      const sinceMs = Math.max(0, fromMs - CLOCK_SLACK_MS);
      const archivedTo = await requireCompleteSince(nodes, query, partition, sinceMs);
      const rows = await query<EntryRow & { is_refunded: boolean }>(OF_PRICES, [
        ...[partition, sinceMs, new Date(fromMs).toISOString(), new Date(toMs).toISOString()],
        ...[charged.map(({ endpoint }) => endpoint), charged.map(({ price }) => price)],
      ]);
      const charges = rows.map(entryOf);
      const refunded = new Set(charges.filter((_, at) => rows[at]!.is_refunded).map((one) => one.requestId));
      return { charges, refunded, archivedTo };
    });
  return { readArchived, findCharge, findCharges, findEntry };
}

async function inSnapshot<T>(
  url: string,
  nodes: RedisNodes,
  partition: number | undefined,
  work: (query: ArchiveQuery) => Promise<T>,
): Promise<T> {
  const archive = connectArchive(url);
  const read = (): Promise<T> =>
    archive.transaction(async (query) => {
      await query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY");
      await identifyFor(nodes, query, partition);
      return work(query);
    });
  try {
    for (let reads = 1; ; reads++) {
      try {
        return await read();
      } catch (error) {
        if (!(error instanceof BehindError) || reads === READS_MAX) throw error;
      }
    }
  } catch (error) {
    const { why, advice } = archiveReason(error);
    throw new Error(`${why}; ${advice}`, { cause: error });
  } finally {
    archive.close();
  }
}

/** The archive lacks entries that have left Redis. A read during a copy and a trim looks like that, too. */
class BehindError extends ArchiveError {
  constructor() {
    super("the archive lacks ledger entries that have left Redis", "restore a newer backup of it");
  }
}

const NEWEST = `
  SELECT * FROM tollgate.ledger_entries WHERE partition = $1 ORDER BY id_ms DESC, id_number DESC LIMIT 1`;

const NEWEST_OF_ALL = `
  SELECT p.partition, e.id FROM unnest($1::int[]) AS p(partition), LATERAL (
    SELECT id FROM tollgate.ledger_entries e WHERE e.partition = p.partition ORDER BY e.id_ms DESC, e.id_number DESC LIMIT 1
  ) e`;

const GAPS = `
  SELECT FROM tollgate.ledger_gaps WHERE partition = $1 AND split_part(until, '-', 1)::bigint >= $2 LIMIT 1`;

const COUNT = `
  SELECT count(*)::int AS entries FROM tollgate.ledger_entries
  WHERE account_id = $1 AND partition = $2 AND (id_ms, id_number) <= ($3, $4)`;

/** @returns the archive's newest entry of the partition @throws BehindError, ArchiveError */
async function requireCopied(nodes: RedisNodes, query: ArchiveQuery, partition: number): Promise<string> {
  const redis = nodes.of(partition);
  const [row] = await query<EntryRow>(NEWEST, [partition]);
  const newest = row && entryOf(row);
  const archivedTo = newest?.streamId ?? LEDGER_START;
  // The ledger is read first: an entry that leaves meanwhile counts as left.
  const [stored] = await redis.xrange(partitionNames(partition).ledger, archivedTo, archivedTo);
  const { lastEntry: cut } = await readCut(redis, partition);
  const ahead = compareIds(archivedTo, cut);
  if (ahead < 0) throw new BehindError();
  if (ahead > 0 && newest && !(stored && isSameEntry(ledgerEntry(partition, stored), newest)))
    throw new ArchiveError(
      "Redis has lost ledger entries that the archive has",
      "a gateway finds out within seconds which of them count",
    );
  return archivedTo;
}

/** Requires that archive and Redis together have all entries. @returns the archive's newest of the partition @throws BehindError, ArchiveError */
async function requireComplete(
  nodes: RedisNodes,
  query: ArchiveQuery,
  { partition, accountId }: Pick<LedgerEntry, "partition" | "accountId">,
): Promise<string> {
  const archivedTo = await requireCopied(nodes, query, partition);
  if ((await query(GAPS, [partition, 0])).length === 0) return archivedTo;
  const { entry = LEDGER_START, entries = 0 } =
    (await readCheckpoint(nodes.of(partition), partition, accountId)) ?? {};
  const [has] = await query<{ entries: number }>(COUNT, [accountId, partition, ...entry.split("-")]);
  if (has?.entries !== entries) throw new BehindError();
  return archivedTo;
}

async function requireCompleteSince(
  nodes: RedisNodes,
  query: ArchiveQuery,
  partition: number,
  sinceMs: number,
): Promise<string> {
  const archivedTo = await requireCopied(nodes, query, partition);
  if ((await query(GAPS, [partition, sinceMs])).length > 0) throw new BehindError();
  return archivedTo;
}

/** Requires that the archive has all entries that have left Redis. @throws BehindError */
async function requireReach(nodes: RedisNodes, query: ArchiveQuery): Promise<void> {
  if ((await query("SELECT FROM tollgate.ledger_gaps LIMIT 1")).length > 0) throw new BehindError();
  const partitions = Array.from({ length: await partitionsOf(nodes) }, (_, partition) => partition);
  const rows = await query<{ partition: number; id: string }>(NEWEST_OF_ALL, [partitions]);
  const newest = new Map(rows.map(({ partition, id }) => [partition, id]));
  const cuts = await manyByNode<string | null, number>(partitions, nodes.of, (pipe, partition) =>
    pipe.hget(partitionNames(partition).trimmed, "last_entry"),
  );
  for (const [partition, cut] of cuts.entries())
    if (cut !== null && compareIds(newest.get(partition) ?? LEDGER_START, cut) < 0) throw new BehindError();
}
