import { type RedisNodes, storedFacts } from "../redis/store-facts.ts";
import { notedArchives, requireSameArchive } from "./archive-record.ts";
import { ArchiveError } from "./migrations.ts";
import type { ArchiveQuery } from "./tables.ts";

interface ArchiveIdentity {
  archiveId: string;
  storeId: string;
}

/** For the copier: claims an unused archive. @throws ArchiveError for another store's */
export async function identifyOrClaim(query: ArchiveQuery, storeId: string): Promise<ArchiveIdentity> {
  const known = await identityOf(query);
  if (known === undefined)
    await query("INSERT INTO tollgate.archive (store_id) VALUES ($1) ON CONFLICT DO NOTHING", [storeId]);
  return requireOwner(known ?? (await identityOf(query)), storeId);
}

/** For look-ups: the archive must be this store's, and the one that it is copied to. @throws ArchiveError, OtherArchiveError */
export async function identifyFor(nodes: RedisNodes, query: ArchiveQuery, partition?: number): Promise<void> {
  const known = await identityOf(query);
  const { id } = await storedFacts(nodes);
  const { archiveId } = requireOwner(known, id);
  for (const noted of await notedArchives(nodes, partition)) requireSameArchive(noted, archiveId);
}

export function requireOwner(
  identity: ArchiveIdentity | undefined,
  storeId: string | undefined,
): ArchiveIdentity {
  if (identity === undefined)
    throw new ArchiveError(
      "the archive is empty: no gateway has copied anything to it",
      "see that ARCHIVE_URL is that of the gateways",
    );
  if (identity.storeId === storeId) return identity;
  throw new ArchiveError(
    `the archive belongs to another store (${identity.storeId}; this store is ${storeId ?? "new"})`,
    "set ARCHIVE_URL to this store's database, or to an empty one",
  );
}

export async function identityOf(query: ArchiveQuery): Promise<ArchiveIdentity | undefined> {
  const [row] = await query<{ archive_id: string; store_id: string }>(
    "SELECT archive_id, store_id FROM tollgate.archive",
  );
  return row && { archiveId: row.archive_id, storeId: row.store_id };
}
