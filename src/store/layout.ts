/**
 * How the records of tasks are laid out, as `tg:meta layout` says. Decision 0044.
 * - `1`: a single server's store of an earlier release. The records are outside the partitions, without claims.
 * - `1>2`: `tollgate store migrate` has begun. As layout 2, and records of layout 1 are moved as they are met.
 * - `2`: new stores, and all on a Redis Cluster.
 * - `3`: as layout 2, and entries may leave the ledger. Decision 0051.
 */
export type Layout = "1" | "1>2" | "2" | "3";

/** The layout of a new store. */
export const NEW_LAYOUT: Layout = "2";
/** The layout of a store whose ledger may be trimmed. */
export const TRIMMABLE_LAYOUT: Layout = "3";

/** In the place of a layout while `tollgate archive restore` fills the store. */
export const RESTORING = "restoring";

const KNOWN: ReadonlySet<string> = new Set<Layout>(["1", "1>2", "2", "3"]);

/** Whether the records of all tasks are in the partitions, with claims. */
export const hasTasksInPartitions = (layout: string): boolean =>
  layout === NEW_LAYOUT || layout === TRIMMABLE_LAYOUT;

/** @throws Error that says what to do about the store of a later release */
export function knownLayout(text: string): Layout {
  if (KNOWN.has(text)) return text as Layout;
  if (text === RESTORING)
    throw new Error(
      "the store is being restored from the archive; wait until `tollgate archive restore` has ended, or empty Redis and restore " +
        "again if that was interrupted",
    );
  throw new Error(
    `the store has layout ${text}, and this release of Tollgate knows layouts 1 to 3; run the later release that wrote it`,
  );
}
