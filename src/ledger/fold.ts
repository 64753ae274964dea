import { isDeepStrictEqual } from "node:util";
import type { Checkpoint } from "../records/checkpoints.ts";
import { isLater } from "../records/entry-ids.ts";
import { kindOf, LEDGER_START, type LedgerEntry, UNMETERED } from "../records/ledger-entries.ts";
import type { RequestRecord } from "../records/records.ts";
import { type Charges, createCharges } from "./charges.ts";

/** What the ledger promises, by the name under which a violation is reported: the invariants of docs/ARCHITECTURE.md. */
export type Invariant =
  | "chain"
  | "balance"
  | "held"
  | "total_used"
  | "references"
  | "requests"
  | "slots"
  | "due"
  | "window"
  | "day_count"
  | "accounts"
  /** An entry that the store had confirmed, and has no more. */
  | "lost"
  /** Archive and store differ. */
  | "archive";

/** One broken promise, in the words in which it is printed. */
interface Violation {
  invariant: Invariant;
  account_id: string;
  request_id?: string;
  message: string;
}

export type Report = (invariant: Invariant, accountId: string, message: string, requestId?: string) => void;

/** Violations that are listed; the others are counted. */
const VIOLATIONS_MAX = 1000;

/** What a verification has found. */
export interface Findings {
  /** Whether everything could be read, and is right. */
  ok: boolean;
  violations: Violation[];
  /** Violations beyond the bound of the list. */
  unlisted?: number;
}

/** Adds what is reported to `findings`. */
export const reportInto =
  (findings: Findings): Report =>
  (invariant, accountId, message, requestId) => {
    findings.ok = false;
    if (findings.violations.length >= VIOLATIONS_MAX) {
      findings.unlisted = (findings.unlisted ?? 0) + 1;
      return;
    }
    const request = requestId ? { request_id: requestId } : {};
    findings.violations.push({ invariant, account_id: accountId, ...request, message });
  };

/** What the ledger says of one account so far. */
export interface AccountFold {
  entries: number;
  balance: number;
  recharged: number;
  consumed: number;
  refunded: number;
  /** By hand; those downwards are negative. */
  adjusted: number;
  /** Credits granted under a reference, and how many entries have one. */
  referenced: number;
  references: number;
  /** Id of the last entry; empty before the first. */
  last: string;
}

const DAY_MS = 86_400_000;
/** The day by UTC that a moment lies in, as days since 1970. @param atMs Unix ms, or as stored */
export const dayOf = (atMs: string | number): number => Math.floor(Number(atMs) / DAY_MS);

/**
 * The ledger of one partition, read from its beginning up to `lastId`. The fold of an account whose older entries have left
 * the ledger begins with its checkpoint.
 */
export interface LedgerFold {
  lastId: string;
  accounts: Map<string, AccountFold>;
  /** Account id to the credits of charges that have left the ledger and were not refunded by then. */
  left: Map<string, number>;
  /** Account id to the refunds of such charges; the readings of one ledger share it, since they share the credits. */
  refundsOfLeft: Map<string, { streamId: string; amount: number }[]>;
  charges: Charges;
  /** Whether this is the first reading, or the only one. The others look at the charges of further requests alone. */
  isFirst: boolean;
  /** Key id to the charged requests of its latest day that are known to count there. */
  daily: Map<string, { day: number; count: number }>;
}

/**
 * @param part of the ledger's requests, from 0
 * @param refundsOfLeft that of the earlier readings of the same ledger
 */
export const emptyFold = (
  part = 0,
  parts = 1,
  refundsOfLeft: LedgerFold["refundsOfLeft"] = new Map(),
): LedgerFold => ({
  lastId: LEDGER_START,
  accounts: new Map(),
  left: new Map(),
  refundsOfLeft,
  charges: createCharges({ part, parts }),
  isFirst: part === 0,
  daily: new Map(),
});

/** What a later reading finds again. */
const FOUND_BEFORE: Report = () => undefined;

export const emptyAccount = (): AccountFold => ({
  entries: 0,
  balance: 0,
  recharged: 0,
  consumed: 0,
  refunded: 0,
  adjusted: 0,
  referenced: 0,
  references: 0,
  last: "",
});

/** What an account's checkpoint says. */
function accountAt(checkpoint: Checkpoint): AccountFold {
  const { entry: last, entries, balance, recharged, consumed, refunded, adjusted } = checkpoint;
  const { referenced, references } = checkpoint;
  return { last, entries, balance, recharged, consumed, refunded, adjusted, referenced, references };
}

/**
 * Goes on from an account's checkpoint, where that is ahead of what was read: its entries up to there have left the ledger
 * before they could be read.
 */
export function goOnFrom(fold: LedgerFold, accountId: string, checkpoint: Checkpoint, report: Report): void {
  const account = fold.accounts.get(accountId) ?? emptyAccount();
  const atCheckpoint = accountAt(checkpoint);
  if (isLater(checkpoint.entry, account.last || LEDGER_START)) {
    fold.accounts.set(accountId, atCheckpoint);
    // The checkpoint may be a later one than the earlier readings met: it has their refunds up to there.
    const refunds = fold.refundsOfLeft.get(accountId) ?? [];
    const later = refunds.filter(({ streamId }) => isLater(streamId, checkpoint.entry));
    const refunded = later.reduce((sum, { amount }) => sum + amount, checkpoint.refunded);
    fold.left.set(accountId, checkpoint.consumed - refunded);
  } else if (fold.isFirst && account.last === checkpoint.entry && !isDeepStrictEqual(account, atCheckpoint)) {
    report("chain", accountId, `its checkpoint does not say what its entries up to ${checkpoint.entry} say`);
  }
}

/**
 * Adds the next entry: the chain of its account, and what its request was charged. Invariants 1 and 2.
 * @returns whether a record of its request is to be compared with it
 */
export function addEntry(fold: LedgerFold, entry: LedgerEntry, reportAll: Report): boolean {
  const { accountId, amount, balanceAfter, streamId } = entry;
  const report = fold.isFirst ? reportAll : FOUND_BEFORE;
  fold.lastId = streamId;
  const account = fold.accounts.get(accountId) ?? emptyAccount();
  fold.accounts.set(accountId, account);

  if (balanceAfter !== account.balance + amount) {
    report(
      "chain",
      accountId,
      `entry ${streamId}: ${account.balance} and ${amount} do not make ${balanceAfter}`,
      entry.requestId || undefined,
    );
  }
  if (entry.previous !== account.last) {
    const before = account.last || "none";
    report("chain", accountId, `entry ${streamId} follows ${before}, but names ${entry.previous || "none"}`);
  }
  if (!(balanceAfter >= 0)) {
    report("balance", accountId, `entry ${streamId} leaves ${balanceAfter}`, entry.requestId || undefined);
  }
  account.entries++;
  account.balance = balanceAfter;
  account.last = streamId;

  if (entry.reference !== "") account.references++;
  switch (kindOf(entry)) {
    case "charge":
      account.consumed -= amount;
      if (!(amount < 0 || (amount === 0 && entry.reason === UNMETERED)))
        report("requests", accountId, `entry ${streamId} consumes ${-amount}`, entry.requestId);
      return !fold.charges.concerns(entry.requestId) || addCharge(fold, entry, reportAll);
    case "refund":
      account.refunded += amount;
      return !fold.charges.concerns(entry.requestId) || addRefund(fold, entry, reportAll);
    case "purchase":
      account.recharged += amount;
      if (entry.reference !== "") account.referenced += amount;
      break;
    case "adjustment":
      account.adjusted += amount;
      if (entry.reason === "") report("chain", accountId, `entry ${streamId} of ${amount} has no reason`);
  }
  if (amount === 0 || entry.type !== (amount < 0 ? "consume" : "recharge")) {
    report("chain", accountId, `entry ${streamId} is a ${entry.type} of ${amount}`);
  }
  return false;
}

function addCharge(fold: LedgerFold, entry: LedgerEntry, report: Report): boolean {
  const { accountId, amount, requestId, streamId } = entry;
  if (fold.charges.get(requestId) !== undefined) {
    report("requests", accountId, `entry ${streamId} charges this request once more`, requestId);
    return false;
  }
  fold.charges.set(requestId, -amount);
  return true;
}

function addRefund(fold: LedgerFold, entry: LedgerEntry, report: Report): boolean {
  const { accountId, amount, requestId, streamId } = entry;
  const price = fold.charges.get(requestId);
  const left = fold.left.get(accountId) ?? 0;
  if (price === undefined && amount <= left) {
    // Its charge has left the ledger.
    fold.left.set(accountId, left - amount);
    const refunds = fold.refundsOfLeft.get(accountId);
    if (refunds) refunds.push({ streamId, amount });
    else fold.refundsOfLeft.set(accountId, [{ streamId, amount }]);
    fold.charges.set(requestId, -amount);
    return true;
  }
  if (price === undefined || price < 0) {
    const what = price === undefined ? "what was never charged" : "this request once more";
    report("requests", accountId, `entry ${streamId} refunds ${what}`, requestId);
    return false;
  }
  fold.charges.set(requestId, -price);
  if (amount !== price) report("requests", accountId, `charged ${price}, refunded ${amount}`, requestId);
  return true;
}

/** Whether a request was charged. Of one that falls to another reading it is said to be. */
export const isCharged = ({ charges }: LedgerFold, requestId: string): boolean =>
  !charges.concerns(requestId) || charges.get(requestId) !== undefined;

/** Compares an entry with the record of its request, read later: a record only ever moves on. Invariant 2. */
export function compareRecord(
  fold: LedgerFold,
  entry: LedgerEntry,
  record: RequestRecord,
  report: Report,
): void {
  const { accountId, requestId, type } = entry;
  if (record.state === undefined) return;
  const differs = (what: string): void => report("requests", accountId, what, requestId);
  if (record.state !== "bound" && record.state !== "finished") {
    differs(`${type} of a request that is ${record.state}`);
    return;
  }
  if (Number(record.price) !== Math.abs(entry.amount)) {
    differs(`${type} of ${Math.abs(entry.amount)}, but its price is ${record.price}`);
  }
  if (record.account_id !== accountId) differs(`${type} of a request of account ${record.account_id}`);
  if (record.task_id !== entry.taskId) differs(`${type} for task ${entry.taskId}, not ${record.task_id}`);
  if (record.uncollected !== undefined) differs(`${type} of a request that is marked uncollected`);
  const left = type === "consume" ? record.trimmed_charge : record.trimmed_refund;
  if (left !== undefined && left !== entry.streamId) differs(`${type} once more, after that of ${left}`);
  if (type !== "consume") {
    const isByOperator = entry.reference !== "" && record.state === "finished";
    if (record.status !== "failed" && !isByOperator)
      differs(`refund of a task that is ${record.status ?? record.state}`);
    return;
  }
  // A request that was void before its task came (`reason`) gave its place in the day back.
  if (record.admitted_at === undefined || record.reason !== undefined) return;
  const day = dayOf(record.admitted_at);
  const seen = fold.daily.get(entry.keyId);
  // This request was admitted and charged on an earlier day than a request before it: the store's clock went back, and an
  // operator set the key's clock back. The count of that day starts again. Decision 0008.
  const wasPutBack = seen !== undefined && dayOf(entry.atMs) < seen.day;
  if (seen?.day === day) seen.count++;
  else if (!seen || seen.day < day || wasPutBack) fold.daily.set(entry.keyId, { day, count: 1 });
}
