import { type LedgerEntry, ledgerEntry, type StreamEntry } from "../records/ledger-entries.ts";
import { partitionNames } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

/** Which entries of an account are wanted. Times are Unix ms. */
export interface HistoryFilter {
  /** `type/kind` each; undefined for all. */
  wanted?: readonly string[] | undefined;
  endpoint?: string | undefined;
  fromMs?: number | undefined;
  toMs?: number | undefined;
  /** Refunds are wanted that came after `toMs`, too: all that are looked at, and those before this are. */
  refundsToMs?: number | undefined;
}

interface HistoryCall extends HistoryFilter {
  partition: number;
  accountId: string;
  /** Id of the entry to begin with; or `(` and an id: the account's newest entry before that one. */
  from: string;
  lookedAtMax: number;
  answeredMax: number;
}

/** `left`: the ledger does not have the entry at `next`. `other`: an entry is another account's. */
export interface History {
  outcome: "read" | "left" | "other";
  entries: LedgerEntry[];
  /** Where the next call goes on; empty if there is nothing more. */
  next: string;
}

export const history: Script<HistoryCall, History> = {
  name: "history",
  keys({ partition }) {
    const { ledger, trimmed } = partitionNames(partition);
    return [ledger, trimmed];
  },
  args({ accountId, from, lookedAtMax, answeredMax, ...filter }) {
    const { wanted, endpoint = "", fromMs = "", toMs = "", refundsToMs } = filter;
    return [
      ...[accountId, from, lookedAtMax, answeredMax],
      ...[wanted === undefined ? "" : ` ${wanted.join(" ")} `, endpoint, fromMs, toMs],
      refundsToMs === undefined ? "" : 1,
    ];
  },
  read([outcome, , entries, next], { partition }) {
    return {
      outcome: outcome as History["outcome"],
      entries: (entries as StreamEntry[]).map((entry) => ledgerEntry(partition, entry)),
      next: String(next),
    };
  },
};
