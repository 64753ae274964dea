import { archiveUrlRule } from "../config/environment.ts";
import type { OpenedArchive } from "../ledger/archive/connection.ts";
import { OperatorError } from "../store/operator-error.ts";

/** Reads of a year of a large ledger. */
const READ_MS = 300_000;

/** Whether this machine has an archive. */
export const hasArchive = (): boolean => (process.env.ARCHIVE_URL ?? "") !== "";

/** The same, or undefined where there is no archive. @throws OperatorError where it cannot be used */
export const optionalArchiveUrl = (): string | undefined => (hasArchive() ? archiveUrl() : undefined);

/** May hold a password. @throws OperatorError where there is none, or it cannot be used */
export function archiveUrl(): string {
  const url = process.env.ARCHIVE_URL;
  if (!url) throw new OperatorError("there is no archive: set ARCHIVE_URL in the environment");
  const problem = archiveUrlRule(url);
  if (problem !== undefined) throw new OperatorError(`ARCHIVE_URL ${problem}`);
  return url;
}

/**
 * Runs one command's work with the archive at `ARCHIVE_URL`, and closes it whatever happens. PostgreSQL's client is loaded only
 * here.
 * @param statementMs how long one statement may take
 * @throws OperatorError in one sentence that says what to do
 */
export async function withArchive<T>(
  work: (archive: OpenedArchive) => Promise<T>,
  statementMs = READ_MS,
): Promise<T> {
  const url = archiveUrl();
  const { connectArchive } = await import("../ledger/archive/connection.ts");
  const { archiveReason } = await import("../ledger/archive/reasons.ts");
  const archive = connectArchive(url, { statementMs });
  try {
    return await work(archive);
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    const { why, advice } = archiveReason(error);
    throw new OperatorError(`the archive: ${why}; ${advice}`);
  } finally {
    archive.close();
  }
}
