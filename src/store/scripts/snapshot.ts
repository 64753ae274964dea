import { type Checkpoint, checkpointOf } from "../checkpoints.ts";
import { LEDGER_PAGE, recordOf, type StreamEntry } from "../ledger-entries.ts";
import { accountNames, keyNames, partitionNames, requestName } from "../names.ts";
import type { AccountRecord, KeyFields, RequestRecord } from "../records.ts";
import type { Script } from "../script-definition.ts";
import { type LedgerPart, ledgerPart } from "./entries.ts";

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
  /** Undefined if all its entries are in the ledger. */
  checkpoint: Checkpoint | undefined;
  /** Open requests of all its keys, if it has limits over all of them. */
  slots: string[];
}

export interface KeySnapshot {
  keyId: string;
  record: KeyFields;
  window: string[];
  slots: string[];
}

/** `tail`: the partition's ledger from `after` on; `behind` when there may be more of it before this instant. */
export type SnapshotReply = { tail: LedgerPart } & (
  | { outcome: "behind" }
  | ({ outcome: "seen" } & AccountSnapshot)
);

/** Reads an account, its keys and their open requests at one instant. */
export const snapshot: Script<SnapshotCall, SnapshotReply> = {
  name: "snapshot",
  isBatched: false,
  keys({ partition, accountId }) {
    const { account, references, keys, checkpoint, slots } = accountNames(partition, accountId);
    const { ledger, trimmed } = partitionNames(partition);
    return [account, references, keys, ledger, trimmed, checkpoint, slots];
  },
  args({ partition, after }) {
    const { key, window, slots } = keyNames(partition, "");
    const { checkpoint } = accountNames(partition, "");
    return [after, LEDGER_PAGE, key, window, slots, requestName(partition, ""), checkpoint];
  },
  read(reply, { partition }) {
    const [outcome, , entries, cut, before, ...seen] = reply as Replied;
    const tail = ledgerPart(partition, entries, cut, before);
    if (outcome === "behind") return { outcome, tail };
    const [account, references, keys, requests, checkpoint, slots] = seen;
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
      checkpoint: checkpointOf(checkpoint),
      slots,
    };
  },
};

/** Records are flat lists of fields and values. */
type Replied = [
  outcome: string,
  nowMs: number,
  entries: StreamEntry[],
  cut: string,
  before: string[],
  account: string[],
  references: number,
  keys: [id: string, record: string[], window: string[], slots: string[]][],
  requests: [id: string, record: string[]][],
  checkpoint: string,
  slots: string[],
];
