import type { LedgerEntry } from "../records/ledger-entries.ts";
import { accountNames, partitionNames, requestName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

/** Distinguishes an entry from one of another ledger with the same id. */
export type ArchivedEntry = Pick<
  LedgerEntry,
  "streamId" | "accountId" | "balanceAfter" | "requestId" | "reference"
>;

export interface TrimCall {
  partition: number;
  /** The newest entry that the archive has. It stays, and all older ones may leave. */
  archivedTo: ArchivedEntry;
  /** Younger entries stay. */
  keepMs: number;
  /** At most so many entries leave, and as many references. */
  most: number;
  /** References of grants that have left are kept until they are so old. */
  keepReferencesMs: number;
}

/**
 * `trimmed`: what has left Redis; `more` may leave. `unknown`: the ledger lacks the archive's newest entry. `broken`: the oldest entry
 * does not follow from its checkpoint; it and all after it stay, and `ledger verify` reports it.
 */
export type TrimmedSlice =
  | { outcome: "trimmed"; entries: number; references: number; more: boolean }
  | { outcome: "unknown" }
  | { outcome: "broken"; entry: string };

/** Removes the oldest entries of a partition's ledger; its accounts' checkpoints go on from them. */
export const trim: Script<TrimCall, TrimmedSlice> = {
  name: "trim",
  keys({ partition }) {
    const { ledger, trimmed, grants, rolled } = partitionNames(partition);
    return [ledger, trimmed, grants, rolled];
  },
  args({ partition, archivedTo, keepMs, most, keepReferencesMs }) {
    const { streamId, accountId, balanceAfter, requestId, reference } = archivedTo;
    const { checkpoint, references } = accountNames(partition, "");
    return [
      ...[streamId, accountId, balanceAfter, requestId, reference],
      ...[Math.round(keepMs), most, Math.round(keepReferencesMs)],
      ...[checkpoint, requestName(partition, ""), references],
    ];
  },
  read([outcome, , first, references, more]) {
    if (outcome === "broken") return { outcome, entry: String(first) };
    if (outcome === "unknown") return { outcome };
    return { outcome: "trimmed", entries: Number(first), references: Number(references), more: more === 1 };
  },
};
