import { LEDGER_PAGE, type LedgerEntry, ledgerEntry, recordOf, type StreamEntry } from "../ledger-entries.ts";
import { accountNames, keyNames, partitionNames, requestName } from "../names.ts";
import type { AccountRecord, KeyFields, RequestRecord } from "../records.ts";
import type { Script } from "../script-definition.ts";

export interface SnapshotCall {
  partition: number;
  accountId: string;
  /** The ledger entry that was read last. */
  after: string;
}

/** Everything of one account at one instant. */
export interface AccountSnapshot {
  account: AccountRecord;
  /** How many references have credited it. */
  references: number;
  keys: KeySnapshot[];
  /** Requests in the slots of its keys. */
  requests: Map<string, RequestRecord>;
}

export interface KeySnapshot {
  keyId: string;
  record: KeyFields;
  window: string[];
  slots: string[];
}

/** `tail`: entries of the partition's ledger from `after` on; `behind` when there may be more before this instant. */
export type SnapshotReply = { tail: LedgerEntry[] } & (
  | { outcome: "behind" }
  | ({ outcome: "seen" } & AccountSnapshot)
);

/** Reads an account, its keys and their open requests at one instant. */
export const snapshot: Script<SnapshotCall, SnapshotReply> = {
  name: "snapshot",
  isBatched: false,
  keys({ partition, accountId }) {
    const { account, references, keys } = accountNames(partition, accountId);
    return [account, references, keys, partitionNames(partition).ledger];
  },
  args({ partition, after }) {
    const { key, window, slots } = keyNames(partition, "");
    return [after, LEDGER_PAGE, key, window, slots, requestName(partition, "")];
  },
  read(reply, { partition }) {
    const [outcome, , entries, ...seen] = reply as [string, number, StreamEntry[], ...Seen];
    const tail = entries.map((entry) => ledgerEntry(partition, entry));
    if (outcome === "behind") return { outcome, tail };
    const [account, references, keys, requests] = seen;
    return {
      outcome: "seen",
      tail,
      account: recordOf(account),
      references,
      keys: keys.map(([keyId, record, window, slots]) => ({
        keyId,
        record: recordOf(record),
        window,
        slots,
      })),
      requests: new Map(requests.map(([id, record]) => [id, recordOf(record)])),
    };
  },
};

/** Records are flat lists of fields and values. */
type Seen = [
  account: string[],
  references: number,
  keys: [id: string, record: string[], window: string[], slots: string[]][],
  requests: [id: string, record: string[]][],
];
