import { type Checkpoint, checkpointOf } from "../records/checkpoints.ts";
import {
  LEDGER_START,
  type LedgerEntry,
  ledgerEntry,
  recordOf,
  type StreamEntry,
} from "../records/ledger-entries.ts";
import { accountNames, partitionNames, requestName, totalsName, usageName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

// Reading, counting and trimming a partition's ledger, and the lists that are made of it.

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

/** A place in a list that is ordered by score, then by the bytes of the member. */
export interface RankedPlace {
  score: number;
  member: string;
}

interface RankedCall {
  /** A sorted set. */
  list: string;
  /** The page begins behind it; undefined for the first. */
  after: RankedPlace | undefined;
  most: number;
  descending: boolean;
}

/** A page of a sorted list of accounts. Reads only. */
export const ranked: Script<RankedCall, RankedPlace[]> = {
  name: "ranked",
  keys: ({ list }) => [list],
  args: ({ after, most, descending }) => [after?.score ?? "", after?.member ?? "", most, descending ? 1 : 0],
  read([, ...page]) {
    const places: RankedPlace[] = [];
    for (let at = 0; at + 1 < page.length; at += 2)
      places.push({ member: String(page[at]), score: Number(page[at + 1]) });
    return places;
  },
};

/** Distinguishes an entry from one of another ledger with the same id. */
export type ArchivedEntry = Pick<
  LedgerEntry,
  "streamId" | "accountId" | "balanceAfter" | "requestId" | "reference"
>;

export interface TrimCall {
  partition: number;
  /** The newest entry that the archive has. It stays, and all older ones may leave. */
  archivedTo: ArchivedEntry;
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
