import type { LedgerEntry } from "../store/ledger-entries.ts";
import type { FindArchivedEntry } from "../store/named-entries.ts";
import type { ReadArchived } from "../store/references.ts";
import type { ArchiveLookUps, FindArchivedCharge } from "../store/refunds.ts";
import type { EntryRow } from "./archive/rows.ts";
import type { ArchiveQuery } from "./archive/tables.ts";

const OF_REFERENCE = "SELECT * FROM tollgate.ledger_entries WHERE account_id = $1 AND reference = $2 LIMIT 1";

const OF_ID = "SELECT * FROM tollgate.ledger_entries WHERE partition = $1 AND id_ms = $2 AND id_number = $3";

/** The charge and the refund of a task, when its request was admitted, and the newest entry of their partition. A request id is no task id. */
const OF_TASK = `
  SELECT e.*, (
    SELECT id FROM tollgate.ledger_entries n WHERE n.partition = e.partition ORDER BY n.id_ms DESC, n.id_number DESC LIMIT 1
  ) AS newest, (
    SELECT admitted_at FROM tollgate.request_rows r WHERE r.request_id = e.request_id AND r.admitted_at IS NOT NULL LIMIT 1
  ) AS admitted_at
  FROM tollgate.ledger_entries e
  WHERE e.request_id = $1 OR e.request_id = (
    SELECT request_id FROM tollgate.ledger_entries WHERE task_id = $1 AND kind = 'charge' ORDER BY at DESC LIMIT 1
  )`;

interface ChargeRow extends EntryRow {
  kind: string;
  newest: string;
  /** Null where the archive has no record of the request. */
  admitted_at: Date | null;
}

/**
 * Looks into the archive, on a connection of its own each time: few grants, adjustments and refunds need it. PostgreSQL's
 * client is loaded only then.
 * @param url undefined where there is no archive
 */
export function archiveLookUps(url: string | undefined): ArchiveLookUps {
  if (url === undefined) return {};
  const readArchived: ReadArchived = (accountId, reference) =>
    asked(url, async (query, entryOf) => {
      const [row] = await query<EntryRow>(OF_REFERENCE, [accountId, reference]);
      return row && entryOf(row);
    });
  const findCharge: FindArchivedCharge = (id) =>
    asked(url, async (query, entryOf) => {
      const rows = await query<ChargeRow>(OF_TASK, [id]);
      const charge = rows.find(({ kind }) => kind === "charge");
      if (!charge) return undefined;
      const isRefunded = rows.some(({ kind }) => kind === "refund");
      const found = { ...entryOf(charge), admittedMs: charge.admitted_at?.getTime() };
      return { charge: found, isRefunded, archivedTo: charge.newest };
    });
  const findEntry: FindArchivedEntry = ({ partition, streamId }) =>
    asked(url, async (query, entryOf) => {
      const [row] = await query<EntryRow>(OF_ID, [partition, ...streamId.split("-")]);
      return row && entryOf(row);
    });
  return { readArchived, findCharge, findEntry };
}

async function asked<T>(
  url: string,
  work: (query: ArchiveQuery, entryOf: (row: EntryRow) => LedgerEntry) => Promise<T>,
): Promise<T> {
  const { connectArchive } = await import("./archive/connection.ts");
  const { entryOf } = await import("./archive/rows.ts");
  const { archiveReason } = await import("./archive/reasons.ts");
  const archive = connectArchive(url);
  try {
    return await work(archive.query, entryOf);
  } catch (error) {
    throw new Error(archiveReason(error).why, { cause: error });
  } finally {
    archive.close();
  }
}
