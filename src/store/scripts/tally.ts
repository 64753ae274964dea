import { keyNames, partitionNames } from "../names.ts";
import type { Script } from "../script-definition.ts";

export interface TallyCall {
  partition: number;
  keyIds: readonly string[];
  /** Whether all other keys of the partition are counted. */
  isLast: boolean;
}

/** Counts some keys of a partition under their tiers, if they are not counted yet. */
export const tally: Script<TallyCall, { outcome: "tallied" }> = {
  name: "tally",
  isBatched: false,
  keys: ({ partition }) => [partitionNames(partition).tiers],
  args: ({ partition, keyIds, isLast }) => [keyNames(partition, "").key, isLast ? 1 : 0, ...keyIds],
  read: () => ({ outcome: "tallied" }),
};
