import type { Primary } from "./primary.ts";

/**
 * Which primary has which partition and which name, at one time. A map never changes: another arrangement is another map, and
 * `replaceMap` of the connection puts it in force. Decision 0042.
 */
export interface PrimaryMap {
  of(partition: number): Primary;
  /** The primary of a Redis name: of one outside the partitions, such as `tg:meta`, or of any other. */
  ofName(name: string): Primary;
  /** Each primary once. */
  readonly all: readonly Primary[];
  /**
   * A partition whose names are on this primary, for the name that its probe writes. A number beyond the store's partitions if
   * the primary has none of these.
   */
  partitionOn(primary: Primary): number;
}

/** The map of one server. */
export const everythingOn = (primary: Primary): PrimaryMap => ({
  of: () => primary,
  ofName: () => primary,
  all: [primary],
  partitionOn: () => 0,
});
