import { partitionNames, totalsName, usageName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

/** Entries of one call, and ended tasks: about a millisecond of Redis. */
const ROLLUP_SLICE = 130;
/** After the end of their month. */
const KEPT_MS = 400 * 86_400_000;
/** Of one account in one month, about 2 MB: 100 keys that use six endpoints each day. */
const FIELDS_MAX = 20_000;

export interface RollupCall {
  partition: number;
  /** For tests. */
  bounds?: { slice?: number; fields?: number };
}

export interface RolledUp {
  entries: number;
  ended: number;
  more: boolean;
  /** Entries of the ledger that are not accounted for: 0 unless somebody changed what is stored. */
  unexplained: number;
}

/** Adds the next entries of a partition's ledger, and the next ended tasks, to the usage of their accounts. */
export const rollup: Script<RollupCall, RolledUp> = {
  name: "rollup",
  keys({ partition }) {
    const { ledger, rolled, trimmed, ended } = partitionNames(partition);
    return [ledger, rolled, trimmed, ended];
  },
  args: ({ partition, bounds }) => [
    bounds?.slice ?? ROLLUP_SLICE,
    usageName(partition, "", "").slice(0, -1),
    totalsName(partition, ""),
    KEPT_MS,
    bounds?.fields ?? FIELDS_MAX,
  ],
  read: ([, , entries, ended, more, unexplained]) => ({
    entries: Number(entries),
    ended: Number(ended),
    more: more === 1,
    unexplained: Number(unexplained),
  }),
};
