import type { ReadArchived } from "../store/accounts.ts";

const GRANT = `
  SELECT amount FROM tollgate.ledger_entries WHERE account_id = $1 AND reference = $2 AND type = 'recharge' LIMIT 1`;

/**
 * Looks for grants in the archive, on a connection of its own each time: few grants need it. PostgreSQL's client is loaded
 * only then.
 * @param url undefined where there is no archive
 */
export function archivedGrants(url: string | undefined): ReadArchived | undefined {
  if (url === undefined) return undefined;
  return async (accountId, reference) => {
    const { connectArchive } = await import("./archive/connection.ts");
    const { archiveReason } = await import("./archive/reasons.ts");
    const archive = connectArchive(url);
    try {
      const [grant] = await archive.query<{ amount: string }>(GRANT, [accountId, reference]);
      return grant === undefined ? undefined : Number(grant.amount);
    } catch (error) {
      throw new Error(archiveReason(error).why, { cause: error });
    } finally {
      archive.close();
    }
  };
}
