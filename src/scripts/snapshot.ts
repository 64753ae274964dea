import { type Checkpoint, checkpointOf } from "../records/checkpoints.ts";
import { recordOf, type StreamEntry } from "../records/ledger-entries.ts";
import { accountNames, keyNames, partitionNames, requestName } from "../records/names.ts";
import { accountOf, unpacked } from "../records/packed-fields.ts";
import type { AccountRecord, RequestRecord, UnpackedKey } from "../records/records.ts";
import { ENTRIES_AT_ONCE, type LedgerPart, ledgerPart } from "./ledger.ts";
import type { Script } from "./script-definition.ts";

/** Keys, stamps of their windows and open requests in a slice: about a millisecond of Redis. */
export const ELEMENTS_AT_ONCE = 100;

export interface SlicePlace {
  /** Of its first key among those of the account. */
  rank: number;
  /** Where the slots of that key go on, and its window. */
  slots: string;
  window: number;
}

export const FIRST_SLICE: SlicePlace = { rank: 0, slots: "0", window: 0 };

interface SnapshotCall {
  partition: number;
  accountId: string;
  /** The ledger entry that was read last. */
  after: string;
  from: SlicePlace;
}

export interface AccountSnapshot {
  account: AccountRecord;
  /** How many references have credited it. */
  references: number;
  reversed: number;
  /** Undefined if all its entries are in the ledger. */
  checkpoint: Checkpoint | undefined;
  /** How many slots it has of its own, if it has limits over all its keys. */
  slots: number;
  next: SlicePlace | undefined;
  keys: KeyPart[];
}

/** A key, or a part of one that does not fit in a slice. */
export interface KeyPart {
  keyId: string;
  /** True if this is all of the key. */
  isWhole: boolean;
  slots: number;
  /** Stamps of its window in the last 60 s. */
  live: number;
  /** The stamp before those of this part; empty for none. */
  newer: string;
  stamps: string[];
  record: UnpackedKey;
  requests: SlotRequest[];
}

export interface SlotRequest {
  id: string;
  isDue: boolean;
  /** True if it has a slot of its account, too. */
  isShared: boolean;
  record: Pick<RequestRecord, (typeof REQUEST_VALUES)[number]>;
}

/** The values of a request that lua/store/snapshot.lua reads, in this order. */
const REQUEST_VALUES = [
  "state",
  "account_id",
  "key_id",
  "price",
  "admitted_at",
  "uncollected",
  "reason",
] as const;

/** `tail`: the partition's ledger from `after` on; `behind` when there may be more of it before this instant. */
type SnapshotReply = { tail: LedgerPart } & ({ outcome: "behind" } | ({ outcome: "seen" } & AccountSnapshot));

export const snapshot: Script<SnapshotCall, SnapshotReply> = {
  name: "snapshot",
  keys({ partition, accountId }) {
    const { account, references, keys, checkpoint, slots, reversed } = accountNames(partition, accountId);
    const { ledger, trimmed, due } = partitionNames(partition);
    return [account, references, keys, ledger, trimmed, checkpoint, slots, due, reversed];
  },
  args({ partition, after, from }) {
    const { key, window, slots } = keyNames(partition, "");
    const { checkpoint } = accountNames(partition, "");
    const prefixes = [key, window, slots, requestName(partition, ""), checkpoint];
    return [after, ENTRIES_AT_ONCE, ELEMENTS_AT_ONCE, from.rank, from.slots, from.window, ...prefixes];
  },
  read(reply, { partition }) {
    const [outcome, , entries, cut, before, ...seen] = reply as Replied;
    const tail = ledgerPart(partition, entries, cut, before);
    if (outcome === "behind") return { outcome, tail };
    const [account, references, reversed, checkpoint, slots, rank, slotsFrom, windowFrom, keys] = seen;
    return {
      outcome: "seen",
      tail,
      account: accountOf(recordOf(account)),
      references,
      reversed: Number(reversed),
      checkpoint: checkpointOf(checkpoint),
      slots,
      next: rank === "" ? undefined : { rank, slots: slotsFrom, window: windowFrom },
      keys: keys.map(([keyId, isWhole, slots, live, newer, stamps, record, requests]) => ({
        keyId,
        isWhole: isWhole === 1,
        slots,
        live,
        newer,
        stamps,
        record: unpacked(recordOf(record)),
        requests: requests.map(([id, isDue, isShared, values]) => ({
          id,
          isDue: isDue === 1,
          isShared: isShared === 1,
          record: named(REQUEST_VALUES, values),
        })),
      })),
    };
  },
};

function named<Name extends string>(names: readonly Name[], values: readonly string[]) {
  const record: { [Field in Name]?: string } = {};
  for (const [at, name] of names.entries()) if (values[at]) record[name] = values[at];
  return record;
}

type RepliedRequest = [id: string, isDue: number, isShared: number, values: string[]];

type RepliedKey = [
  id: string,
  isWhole: number,
  slots: number,
  live: number,
  newer: string,
  stamps: string[],
  values: string[],
  requests: RepliedRequest[],
];

type Replied = [
  outcome: string,
  nowMs: number,
  entries: StreamEntry[],
  cut: string,
  before: string[],
  /** Fields and values. */
  account: string[],
  references: number,
  reversed: string,
  checkpoint: string,
  slots: number,
  rank: number | "",
  slotsFrom: string,
  windowFrom: number,
  keys: RepliedKey[],
];
