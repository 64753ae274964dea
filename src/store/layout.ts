import { StoreError } from "./reasons.ts";

/**
 * How records are laid out, as `tg:meta layout` says.
 * - `1`, `1>2`: a single server's store of an earlier release, or one whose migration to 2 was begun by it. The records of tasks
 *   are outside the partitions, without claims. Decision 0044.
 * - `2`: a store of an earlier release, all on a Redis Cluster among them.
 * - `3`: as layout 2, and entries may leave the ledger. Decision 0051.
 * - `>4`: `tollgate store migrate` has begun to bring the store to layout 4. Nobody else uses it.
 * - `4`: lists in order and short checkpoints; entries may leave the ledger. Decision 0057.
 */
export type Layout = "1" | "1>2" | "2" | "3" | ">4" | "4";

/** The only layout that this release serves. */
export const LAYOUT = "4";
/** While `tollgate store migrate` brings the store to it. */
export const MIGRATING: Layout = ">4";
/** Those of earlier releases, which `tollgate store migrate` knows. */
const EARLIER: ReadonlySet<string> = new Set<Layout>(["1", "1>2", "2", "3"]);

/** In the place of a layout while `tollgate archive restore` fills the store. */
export const RESTORING = "restoring";

export const isEarlier = (layout: string): boolean => EARLIER.has(layout);

/** @throws StoreError that says what to do about a store that this release does not serve */
export function requireServed(layout: string): void {
  if (layout === LAYOUT) return;
  if (isEarlier(layout))
    throw new StoreError(
      `the store has layout ${layout}, of an earlier release; run \`tollgate store migrate\`: gateways of earlier releases stop within ` +
        "half a minute, and those of this release serve once it has ended",
    );
  if (layout === MIGRATING)
    throw new StoreError(
      "the store is being migrated; wait until `tollgate store migrate` has ended, or run it again if that was interrupted",
    );
  throw unknownLayout(layout);
}

/** @throws StoreError for a layout that `tollgate store migrate` can do nothing about */
export function requireMigratable(layout: string): asserts layout is Layout {
  if (layout !== LAYOUT && layout !== MIGRATING && !isEarlier(layout)) throw unknownLayout(layout);
}

function unknownLayout(layout: string): StoreError {
  if (layout === RESTORING)
    return new StoreError(
      "the store is being restored from the archive; wait until `tollgate archive restore` has ended, or empty Redis and restore " +
        "again if that was interrupted",
    );
  return new StoreError(
    `the store has layout ${layout}, and this release of Tollgate knows layouts 1 to 4; run the later release that wrote it`,
  );
}
