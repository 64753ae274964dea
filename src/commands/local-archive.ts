import type { OpenedArchive } from "../archive/archive-connection.ts";
import { archiveReason } from "../archive/archive-reasons.ts";
import { identifyFor } from "../archive/identity.ts";
import type { ArchiveQuery } from "../archive/tables.ts";
import { archiveUrlRule } from "../config/environment.ts";
import { OperatorError } from "../records/operator-error.ts";
import { isStoreError } from "../redis/reasons.ts";
import type { RedisNodes } from "../redis/store-facts.ts";
import { withRedis } from "./redis.ts";

/** Reads of a year of a large ledger. */
const READ_MS = 300_000;

export const hasArchive = (): boolean => (process.env.ARCHIVE_URL ?? "") !== "";

/** Undefined where there is no archive. @throws OperatorError where it cannot be used */
export const optionalArchiveUrl = (): string | undefined => (hasArchive() ? archiveUrl() : undefined);

/** May hold a password. @throws OperatorError where there is none, or it cannot be used */
function archiveUrl(): string {
  const url = process.env.ARCHIVE_URL;
  if (!url) throw new OperatorError("there is no archive: set ARCHIVE_URL in the environment");
  const problem = archiveUrlRule(url);
  if (problem !== undefined) throw new OperatorError(`ARCHIVE_URL ${problem}`);
  return url;
}

/** PostgreSQL's client is loaded only here. @param statementMs how long one statement may take */
async function openedArchive(statementMs: number) {
  const { connectArchive } = await import("../archive/archive-connection.ts");
  const inWords = (error: unknown): never => {
    if (error instanceof OperatorError) throw error;
    const { why, advice } = archiveReason(error);
    throw new OperatorError(`the archive: ${why}; ${advice}`);
  };
  return { archive: connectArchive(archiveUrl(), { statementMs }), inWords };
}

/** Runs work with the archive at `ARCHIVE_URL`, and closes it. @throws OperatorError that says what to do */
export async function withArchive<T>(
  work: (archive: OpenedArchive) => Promise<T>,
  statementMs = READ_MS,
): Promise<T> {
  const { archive, inWords } = await openedArchive(statementMs);
  return work(archive).catch(inWords).finally(archive.close);
}

/** Runs a look-up in this store's own archive. @throws OperatorError that says what to do, also for another store's archive */
export async function withOwnArchive<T>(
  work: (query: ArchiveQuery, nodes: RedisNodes) => Promise<T>,
  statementMs = READ_MS,
): Promise<T> {
  const { archive, inWords } = await openedArchive(statementMs);
  // Errors of statements at once, so that nobody takes them for errors of Redis.
  const query: ArchiveQuery = (text, values) => archive.query<never>(text, values).catch(inWords);
  return withRedis(async (nodes) => {
    await identifyFor(nodes, query).catch((error: unknown) => {
      if (isStoreError(error)) throw error;
      inWords(error);
    });
    return work(query, nodes);
  }).finally(archive.close);
}
