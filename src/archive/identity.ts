import type { RedisNodes } from "../redis/nodes.ts";
import { storedFacts } from "../redis/store-facts.ts";
import { notedArchives, requireSameArchive } from "./archive-record.ts";
import { ArchiveError } from "./migrations.ts";
import type { ArchiveQuery } from "./tables.ts";

/** Whose archive it is. */
interface ArchiveIdentity {
  archiveId: string;
  /** `id` of `tg:meta` of the store that is copied to it. */
  storeId: string;
}

/** For the copier: an archive that nobody has used becomes that of `storeId`. @throws ArchiveError for another store's */
export async function identifyOrClaim(query: ArchiveQuery, storeId: string): Promise<ArchiveIdentity> {
  const known = await identityOf(query);
  if (known === undefined)
    await query("INSERT INTO tollgate.archive (store_id) VALUES ($1) ON CONFLICT DO NOTHING", [storeId]);
  return requireOwner(known ?? (await identityOf(query)), storeId);
}

/**
 * For look-ups: the archive is this store's, and the one that the store is copied to.
 * @param partition the one that is looked up; undefined: all
 * @throws ArchiveError for another store's, and for one that nobody has used; OtherArchiveError for another one
 */
export async function identifyFor(nodes: RedisNodes, query: ArchiveQuery, partition?: number): Promise<void> {
  const known = await identityOf(query);
  const { id } = await storedFacts(nodes);
  const { archiveId } = requireOwner(known, id);
  for (const noted of await notedArchives(nodes, partition)) requireSameArchive(noted, archiveId);
}

/** @throws ArchiveError for an archive that is not this store's */
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

/** Undefined for an archive that nobody has used. */
export async function identityOf(query: ArchiveQuery): Promise<ArchiveIdentity | undefined> {
  const [row] = await query<{ archive_id: string; store_id: string }>(
    "SELECT archive_id, store_id FROM tollgate.archive",
  );
  return row && { archiveId: row.archive_id, storeId: row.store_id };
}
