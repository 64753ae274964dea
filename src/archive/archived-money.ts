import { CLOCK_SLACK_MS, type FindArchivedCharges } from "../ledger/corrections.ts";
import type { ReadArchived } from "../operations/credits/references.ts";
import type { FindArchivedCharge } from "../operations/credits/refunds.ts";
import type { FindArchivedEntry } from "../operations/credits/transactions.ts";
import { RECLAIM } from "../records/ledger-entries.ts";
import { partitionOf } from "../records/names.ts";
import type { RedisNodes } from "../redis/nodes.ts";
import { partitionsOf } from "../redis/store-facts.ts";
import { connectArchive } from "./archive-connection.ts";
import { archiveReason } from "./archive-reasons.ts";
import { BehindError, requireComplete, requireCompleteSince, requireReach } from "./complete.ts";
import { identifyFor } from "./identity.ts";
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

const OF_PRICES = `
  SELECT e.*, EXISTS (
    SELECT FROM tollgate.ledger_entries r
    WHERE r.request_id = e.request_id AND r.partition = e.partition AND r.kind = 'refund'
  ) AS is_refunded
  FROM tollgate.ledger_entries e
  JOIN unnest($5::text[], $6::bigint[]) AS wrong(endpoint, amount) ON e.endpoint = wrong.endpoint AND e.amount = -wrong.amount
  WHERE e.partition = $1 AND e.id_ms >= $2 AND e.at >= $3 AND e.at < $4 AND e.kind = 'charge'
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
    return asked(url, nodes, partition, async (query) => {
      await requireComplete(nodes, query, { partition, accountId });
      const [row] = await query<EntryRow>(OF_REFERENCE, [accountId, reference]);
      return row && entryOf(row);
    });
  };
  const findCharge: FindArchivedCharge = (nodes, id) =>
    asked(url, nodes, undefined, async (query) => {
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
    asked(url, nodes, partition, async (query) => {
      const [row] = await query<EntryRow>(OF_ID, [partition, ...streamId.split("-")]);
      return row && entryOf(row);
    });
  const findCharges: FindArchivedCharges = (nodes, partition, { fromMs, toMs, charged }) =>
    asked(url, nodes, partition, async (query) => {
      const sinceMs = Math.max(0, fromMs - CLOCK_SLACK_MS);
      const archivedTo = await requireCompleteSince(nodes, query, partition, sinceMs);
      const rows = await query<EntryRow & { is_refunded: boolean }>(OF_PRICES, [
        ...[partition, sinceMs, new Date(fromMs).toISOString(), new Date(toMs).toISOString()],
        ...[charged.map(({ endpoint }) => endpoint), charged.map(({ amount }) => amount)],
      ]);
      const charges = rows.map(entryOf);
      const refunded = new Set(charges.filter((_, at) => rows[at]!.is_refunded).map((one) => one.requestId));
      return { charges, refunded, archivedTo };
    });
  return { readArchived, findCharge, findCharges, findEntry };
}

async function asked<T>(
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
