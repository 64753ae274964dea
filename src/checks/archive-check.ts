import type { OpenedArchive } from "../archive/archive-connection.ts";
import { archiveReason } from "../archive/archive-reasons.ts";
import { identityOf, requireOwner } from "../archive/identity.ts";
import { pendingSteps } from "../archive/migrations.ts";
import type { Config } from "../config/config.ts";
import { redactArchiveUrl } from "../config/redact.ts";
import { type Check, checksOf } from "./check.ts";

const { good, warning, failed } = checksOf("archive");

/** A check waits no longer for one statement. */
const STATEMENT_MS = 5000;

/** As PostgreSQL refuses the first write of a gateway. */
const READ_ONLY = { code: "25006", message: "transaction_read_only is on" };

/** Tables on which the user lacks the rights of a copier. */
const RIGHTS = `
  SELECT c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = 'tollgate' AND (
    (c.relkind IN ('r', 'v') AND NOT has_table_privilege(c.oid, 'SELECT'))
    OR (c.relkind = 'r' AND c.relname <> 'migrations' AND NOT has_table_privilege(c.oid, 'INSERT')))
  ORDER BY c.relname`;

/** @param storeId undefined if that could not be read */
export async function archiveChecks(
  config: Config | undefined,
  storeId: string | undefined,
): Promise<Check[]> {
  const url = config?.archive.url;
  if (url === undefined) return [];
  // Without an archive, the client for PostgreSQL is not loaded.
  const { connectArchive } = await import("../archive/archive-connection.ts");
  const archive = connectArchive(url, { statementMs: STATEMENT_MS });
  try {
    return [await archiveCheck(archive, redactArchiveUrl(url), storeId)];
  } catch (error) {
    return [unusable(redactArchiveUrl(url), error)];
  } finally {
    archive.close();
  }
}

function unusable(place: string, error: unknown): Check {
  const { why, advice } = archiveReason(error);
  return failed(`${place}: ${why}`, advice);
}

async function archiveCheck(
  { query }: OpenedArchive,
  place: string,
  storeId: string | undefined,
): Promise<Check> {
  const [mode] = await query<{ transaction_read_only: string }>("SHOW transaction_read_only");
  if (mode?.transaction_read_only === "on") return unusable(place, READ_ONLY);
  const pending = await pendingSteps(query);
  if (pending.length > 0)
    return warning(
      `${place} answers; its schema lacks ${pending.join(", ")}`,
      "a gateway whose user owns the schema adds it at its start; else run `tollgate archive migrate` as its owner",
    );
  const missing = await query<{ name: string }>(RIGHTS);
  if (missing.length > 0)
    return failed(
      `${place}: the user lacks rights on ${missing.map(({ name }) => name).join(", ")}`,
      "give it the GRANTs of docs/archive.md",
    );
  const identity = await identityOf(query);
  if (identity === undefined) return good(`${place} is empty; the first gateway copies everything`);
  if (storeId !== undefined) requireOwner(identity, storeId);
  return good(`${place} is this store's`);
}
