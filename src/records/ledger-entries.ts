import type { Redis } from "ioredis";
import type { Transaction } from "../domain/answers.ts";
import { partitionNames } from "./names.ts";

/** Entries read at a time: a millisecond or so of Redis. */
export const LEDGER_PAGE = 1000;
/** How many GET /credits shows. */
export const RECENT_TRANSACTIONS = 10;
/** Before the first entry of any stream. */
export const LEDGER_START = "0-0";

/** The reason of a charge of 0: its request passed while the store was away. */
export const UNMETERED = "unmetered";

/** The type of an entry that takes a refund back: its task had ended as too old, and completed after all. */
export const RECLAIM = "reclaim";
/** The reason of such an entry. */
export const COMPLETED_LATE = "completed_late";

/** One ledger entry; texts are empty where they do not apply. Written by `post` in lua/include/ledger.lua. */
export interface LedgerEntry {
  partition: number;
  streamId: string;
  accountId: string;
  type: string;
  /** Whole credits; negative for consume and reclaim. */
  amount: number;
  balanceAfter: number;
  endpoint: string;
  reason: string;
  taskId: string;
  requestId: string;
  keyId: string;
  reference: string;
  by: string;
  note: string;
  /** Said by entries of kinds that nothing else tells apart: `trial`, `goodwill`, `reversal`. */
  kind: string;
  /** `EntryDetails` as JSON. */
  details: string;
  /** Id of the account's entry before it; empty for its first. */
  previous: string;
  atMs: number;
}

export type StreamEntry = [id: string, fields: string[]];

/** The values of every entry, in one field `entry`, separated by spaces. */
const PACKED = [
  "type",
  "account_id",
  "key_id",
  "endpoint",
  "amount",
  "at",
  "balance_after",
  "previous",
  "request_id",
  "task_id",
];

export function entryFields(flat: readonly string[]): Record<string, string> {
  const { entry, ...fields } = recordOf(flat);
  const values = entry?.split(" ") ?? [];
  values.forEach((value, at) => {
    fields[PACKED[at]!] = value;
  });
  return fields;
}

export function packedEntry(entry: LedgerEntry): string[] {
  const { accountId, type, amount, balanceAfter, atMs, previous, requestId, keyId, taskId, endpoint } = entry;
  const packed = [type, accountId, keyId, endpoint, amount, atMs, balanceAfter, previous, requestId, taskId];
  const { reason, reference, by, note, kind, details } = entry;
  const more = Object.entries({ reason, reference, by, note, kind, details }).filter(
    ([, value]) => value !== "",
  );
  return ["entry", packed.join(" "), ...more.flat()];
}

export function ledgerEntry(partition: number, [streamId, fields]: StreamEntry): LedgerEntry {
  const field = entryFields(fields);
  return {
    partition,
    streamId,
    accountId: field.account_id ?? "",
    type: field.type ?? "",
    amount: Number(field.amount),
    balanceAfter: Number(field.balance_after),
    endpoint: field.endpoint ?? "",
    reason: field.reason ?? "",
    taskId: field.task_id ?? "",
    requestId: field.request_id ?? "",
    keyId: field.key_id ?? "",
    reference: field.reference ?? "",
    by: field.by ?? "",
    note: field.note ?? "",
    kind: field.kind ?? "",
    details: field.details ?? "",
    previous: field.previous ?? "",
    atMs: Number(field.at),
  };
}

/** A revoked refund is a refund below zero. As in lua/include/entry.lua and the archive's view `tollgate.ledger_entries`. */
export const GRANT_KINDS = ["purchase", "trial", "goodwill"] as const;
export type GrantKind = (typeof GRANT_KINDS)[number];
export const ENTRY_KINDS = ["charge", "refund", ...GRANT_KINDS, "adjustment", "reversal"] as const;
export type EntryKind = (typeof ENTRY_KINDS)[number];
export const isStoredKind = (kind: string): kind is EntryKind =>
  kind === "trial" || kind === "goodwill" || kind === "reversal";

export const isGrant = (kind: EntryKind): kind is GrantKind => GRANT_KINDS.includes(kind as GrantKind);

export function kindOf({ type, requestId, taskId, endpoint, reason, amount, kind }: LedgerEntry): EntryKind {
  if (isStoredKind(kind)) return kind;
  // A checkpoint has of a charge neither request nor task.
  const isOfRequest = requestId !== "" || taskId !== "" || endpoint !== "";
  if (isOfRequest) return type === "consume" ? "charge" : "refund";
  return type === "recharge" && reason === "" && amount >= 0 ? "purchase" : "adjustment";
}

/** The meaning of an entry's reference, as `tg:{pNN}:references` has it: one reference never stands for two things. */
export function standsFor(entry: LedgerEntry): string {
  const kind = kindOf(entry);
  switch (kind) {
    case "adjustment":
      return `adjustment ${entry.amount}`;
    case "refund":
      return `refund ${entry.requestId}`;
    case "reversal": {
      const { of = "", requested, all } = detailsOf(entry);
      return reversalText(of, all ? undefined : requested);
    }
    case "trial":
    case "goodwill":
      return grantText(kind, entry.amount);
    default:
      return grantText("purchase", entry.amount);
  }
}

export const shownType = ({ type }: LedgerEntry): Transaction["type"] =>
  type === "consume" || type === RECLAIM ? "consume" : "recharge";

/** As an entry says it: empty for a purchase. */
export const storedKind = (kind: GrantKind): string => (kind === "purchase" ? "" : kind);

/** The meaning of a grant's reference; `grant_text` in lua/include/grant.lua makes the same text. */
export const grantText = (kind: GrantKind, credits: number): string =>
  kind === "purchase" ? String(credits) : `${kind} ${credits}`;

/** The meaning of a reversal's reference, as lua/credits/reverse.lua makes it. @param amount undefined: all that is left */
export const reversalText = (of: string, amount: number | undefined): string =>
  `reversal ${amount ?? "all"} ${of}`;

export function transactionOf(entry: LedgerEntry): Transaction {
  const { amount, balanceAfter, endpoint, reason, taskId, atMs } = entry;
  const type = shownType(entry);
  return {
    id: transactionId(entry),
    type,
    amount,
    balance_after: balanceAfter,
    // A refund is a recharge, and the API has `endpoint` on consume transactions only, on all of them.
    ...(type === "consume" ? { endpoint } : {}),
    ...(reason === "" ? {} : { reason }),
    ...(reason === "" || taskId === "" ? {} : { task_id: taskId }),
    created_at: new Date(atMs).toISOString(),
  };
}

/** The public id of a ledger entry: its partition makes it unique over all ledgers. */
export const transactionId = ({ partition, streamId }: LedgerEntry): string => `txn_${partition}_${streamId}`;

export type PlaceOfEntry = Pick<LedgerEntry, "partition" | "streamId">;

// PostgreSQL takes no more than 2^63 - 1 in either half of a stream's id.
const TRANSACTION_ID = /^txn_(\d{1,4})_(\d{1,18}-\d{1,18})$/;

export function placeOfTransaction(id: string): PlaceOfEntry | undefined {
  const [, partition, streamId] = TRANSACTION_ID.exec(id) ?? [];
  return streamId === undefined ? undefined : { partition: Number(partition), streamId };
}

/** A record from a flat list of fields and values. */
export function recordOf(flat: readonly string[]): Record<string, string> {
  const record: Record<string, string> = {};
  for (let at = 0; at + 1 < flat.length; at += 2) record[flat[at] ?? ""] = flat[at + 1] ?? "";
  return record;
}

/** Oldest first; shorter than `LEDGER_PAGE` at its end. @param last the last stream id of interest */
export async function readLedger(
  redis: Redis,
  partition: number,
  after: string,
  last = "+",
): Promise<LedgerEntry[]> {
  const { ledger } = partitionNames(partition);
  const page = await redis.xrange(ledger, `(${after}`, last, "COUNT", LEDGER_PAGE);
  return page.map((entry) => ledgerEntry(partition, entry));
}

/** Ids of ledger entries, which are those of a Redis stream: "ms-sequence". */

/** When the entry was written, Unix ms. */
export const msOf = (id: string): number => Number(id.slice(0, id.indexOf("-")));

const sequenceOf = (id: string): number => Number(id.slice(id.indexOf("-") + 1));

/** Below 0 if an entry comes before another of the same ledger, 0 if it is the same. */
export const compareIds = (one: string, other: string): number =>
  msOf(one) - msOf(other) || sequenceOf(one) - sequenceOf(other);

export const isLater = (id: string, other: string): boolean => compareIds(id, other) > 0;

/** Optional details of a ledger entry. Amounts of money are decimals such as 9.90, never floating-point numbers. */
export interface EntryDetails {
  /** Of a grant by package: its name and its price then. */
  package?: string | undefined;
  package_price?: string | undefined;
  package_currency?: string | undefined;
  /** Of a purchase: what the customer paid. */
  amount_paid?: string | undefined;
  currency?: string | undefined;
  /** Of a grant: an object of the operator's own. */
  metadata?: Readonly<Record<string, unknown>> | undefined;
  /** Of a reversal: the reference of the grant, what was asked for, and whether that was all that was left. */
  of?: string | undefined;
  requested?: number | undefined;
  all?: boolean | undefined;
  /** Of an adjustment: the request whose charge it corrects. */
  corrects?: string | undefined;
  /** Of a charge that did not cost a list price that is always in force: that price, and what made another of it. */
  list_price?: number | undefined;
  multiplier?: string | undefined;
  price_list?: string | undefined;
}

export const detailsOf = ({ details }: { details: string }): EntryDetails =>
  details === "" ? {} : (JSON.parse(details) as EntryDetails);

/** Empty for none. */
export const detailsText = (details: EntryDetails): string => {
  const text = JSON.stringify(details);
  return text === "{}" ? "" : text;
};
