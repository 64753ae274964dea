import { readCheckpoint, readCut } from "../records/checkpoints.ts";
import { compareIds, LEDGER_START, type LedgerEntry, ledgerEntry } from "../records/ledger-entries.ts";
import { partitionNames } from "../records/names.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { manyByNode } from "../redis/pipelines.ts";
import { partitionsOf } from "../redis/store-facts.ts";
import { isSameEntry } from "./archive-pages.ts";
import { ArchiveError } from "./migrations.ts";
import { type EntryRow, entryOf } from "./rows.ts";
import type { ArchiveQuery } from "./tables.ts";

/** The archive lacks entries that have left Redis. A read during a copy and a trim looks like that, too. */
export class BehindError extends ArchiveError {
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
export async function requireComplete(
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

/** As `requireComplete`, of all entries of a partition since then. */
export async function requireCompleteSince(
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
export async function requireReach(nodes: RedisNodes, query: ArchiveQuery): Promise<void> {
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
