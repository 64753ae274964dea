/**
 * How the records of tasks are laid out, as `tg:meta layout` says. Decision 0044.
 * - `1`: a single server's store of an earlier release. The records are outside the partitions, without claims.
 * - `1>2`: `tollgate store migrate` has begun. As layout 2, and records of layout 1 are moved as they are met.
 * - `2`: new stores, and all on a Redis Cluster.
 */
export type Layout = "1" | "1>2" | "2";

export const NEWEST_LAYOUT: Layout = "2";

const KNOWN: ReadonlySet<string> = new Set<Layout>(["1", "1>2", "2"]);

/** @throws Error that says what to do about the store of a later release */
export function knownLayout(text: string): Layout {
  if (KNOWN.has(text)) return text as Layout;
  throw new Error(
    `the store has layout ${text}, and this release of Tollgate knows layouts 1 and 2; run the later release that wrote it`,
  );
}
