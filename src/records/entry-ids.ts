/** Ids of ledger entries, which are those of a Redis stream: "ms-sequence". */

/** When the entry was written, Unix ms. */
export const msOf = (id: string): number => Number(id.slice(0, id.indexOf("-")));

const sequenceOf = (id: string): number => Number(id.slice(id.indexOf("-") + 1));

/** Below 0 if an entry comes before another of the same ledger, 0 if it is the same. */
export const compareIds = (one: string, other: string): number =>
  msOf(one) - msOf(other) || sequenceOf(one) - sequenceOf(other);

/** True if an entry comes after another of the same ledger. */
export const isLater = (id: string, other: string): boolean => compareIds(id, other) > 0;
