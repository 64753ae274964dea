import { type Checkpoint, checkpointOf } from "../records/checkpoints.ts";
import {
  LEDGER_START,
  type LedgerEntry,
  ledgerEntry,
  recordOf,
  type StreamEntry,
} from "../records/ledger-entries.ts";
import { accountNames, partitionNames } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

/** Entries that a script answers at a time: each is a table of its own in Lua. */
export const ENTRIES_AT_ONCE = 100;

interface EntriesCall {
  partition: number;
  after: string;
}

/** Entries of one partition that follow each other, as its ledger was at one instant. */
export interface LedgerPart {
  entries: LedgerEntry[];
  /** The last entry that had left the ledger; `LEDGER_START` for none. */
  cut: string;
  /** By account id: the checkpoints of those accounts whose entry before one of these had left the ledger. */
  before: Map<string, Checkpoint>;
}

/** The part of a ledger in the replies of ENTRIES and SNAPSHOT. */
export function ledgerPart(
  partition: number,
  entries: readonly StreamEntry[],
  cut: string,
  before: readonly string[],
): LedgerPart {
  const checkpoints = Object.entries(recordOf(before)).flatMap(([accountId, text]) => {
    const checkpoint = checkpointOf(text);
    return checkpoint ? [[accountId, checkpoint] as const] : [];
  });
  return {
    entries: entries.map((entry) => ledgerEntry(partition, entry)),
    cut: cut || LEDGER_START,
    before: new Map(checkpoints),
  };
}

export const entries: Script<EntriesCall, LedgerPart> = {
  name: "entries",
  keys({ partition }) {
    const { ledger, trimmed } = partitionNames(partition);
    return [ledger, trimmed];
  },
  args: ({ partition, after }) => [after, ENTRIES_AT_ONCE, accountNames(partition, "").checkpoint],
  read([, , found, cut, before], { partition }) {
    return ledgerPart(partition, found as StreamEntry[], cut as string, before as string[]);
  },
};
