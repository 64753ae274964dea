import { isDeepStrictEqual } from "node:util";
import { DAY_MS } from "../domain/moments.ts";
import type { Checkpoint } from "../records/checkpoints.ts";
import {
  isLater,
  kindOf,
  LEDGER_START,
  type LedgerEntry,
  RECLAIM,
  UNMETERED,
} from "../records/ledger-entries.ts";
import type { RequestRecord } from "../records/records.ts";
import { type Charges, createCharges } from "./charges.ts";
import { numbersOf } from "./usage.ts";

/** Names of violations: the invariants of docs/ARCHITECTURE.md. */
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
  | "index"
  | "lost"
  | "archive";

interface Violation {
  invariant: Invariant;
  account_id: string;
  request_id?: string;
  message: string;
}

export type Report = (invariant: Invariant, accountId: string, message: string, requestId?: string) => void;

const VIOLATIONS_MAX = 1000;

export interface Findings {
  ok: boolean;
  violations: Violation[];
  unlisted?: number;
}

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

/** Sums of the entries of an account; `adjusted` is negative downwards. */
export const FOLD_NUMBERS = [
  ...(["entries", "balance", "recharged", "consumed", "refunded"] as const),
  ...(["adjusted", "reversed", "references", "referenced"] as const),
] as const;
export type AccountFold = Record<(typeof FOLD_NUMBERS)[number], number> & { last: string };

export const dayOf = (atMs: string | number): number => Math.floor(Number(atMs) / DAY_MS);

/** State of a partition's ledger, read up to `lastId`. Trimmed accounts begin with their checkpoint. */
export interface LedgerFold {
  lastId: string;
  accounts: Map<string, AccountFold>;
  /** Trimmed charges that were not refunded, by account. */
  left: Map<string, number>;
  /** Refunds of trimmed charges, shared by all readings of a ledger. */
  refundsOfLeft: Map<string, { streamId: string; amount: number }[]>;
  charges: Charges;
  /** Later readings check only the charges of further requests. */
  isFirst: boolean;
  daily: Map<string, { day: number; count: number }>;
}

/** @param refundsOfLeft from earlier readings of the same ledger */
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

const FOUND_BEFORE: Report = () => undefined;

export const emptyAccount = (): AccountFold => ({ ...numbersOf(FOLD_NUMBERS), last: "" });

/** Continues from a checkpoint that is ahead: its entries left the ledger before they were read. */
export function resumeAt(fold: LedgerFold, accountId: string, checkpoint: Checkpoint, report: Report): void {
  const account = fold.accounts.get(accountId) ?? emptyAccount();
  const atCheckpoint = { ...numbersOf(FOLD_NUMBERS, checkpoint), last: checkpoint.entry };
  if (isLater(checkpoint.entry, account.last || LEDGER_START)) {
    fold.accounts.set(accountId, atCheckpoint);
    // The checkpoint may be newer than in earlier readings.
    const refunds = fold.refundsOfLeft.get(accountId) ?? [];
    const later = refunds.filter(({ streamId }) => isLater(streamId, checkpoint.entry));
    const refunded = later.reduce((sum, { amount }) => sum + amount, checkpoint.refunded);
    fold.left.set(accountId, checkpoint.consumed - refunded);
  } else if (fold.isFirst && account.last === checkpoint.entry && !isDeepStrictEqual(account, atCheckpoint)) {
    report("chain", accountId, `its checkpoint does not say what its entries up to ${checkpoint.entry} say`);
  }
}

/** Checks chain and charge. Invariants 1 and 2. @returns true if the record of the request must be compared */
export function addEntry(fold: LedgerFold, entry: LedgerEntry, reportAll: Report): boolean {
  const { accountId, amount, balanceAfter, streamId } = entry;
  const report = fold.isFirst ? reportAll : FOUND_BEFORE;
  fold.lastId = streamId;
  const account = fold.accounts.get(accountId) ?? emptyAccount();
  fold.accounts.set(accountId, account);
  checkChain(account, entry, report);
  account.entries++;
  account.balance = balanceAfter;
  account.last = streamId;
  if (entry.reference !== "") account.references++;
  const kind = kindOf(entry);
  switch (kind) {
    case "charge":
      account.consumed -= amount;
      if (!(amount < 0 || (amount === 0 && entry.reason === UNMETERED)))
        report("requests", accountId, `entry ${streamId} consumes ${-amount}`, entry.requestId);
      return !fold.charges.concerns(entry.requestId) || addCharge(fold, entry, reportAll);
    case "refund":
      account.refunded += amount;
      if (!fold.charges.concerns(entry.requestId)) return true;
      return entry.type === RECLAIM ? addReclaim(fold, entry, reportAll) : addRefund(fold, entry, reportAll);
    case "purchase":
      account.recharged += amount;
      if (entry.reference !== "") account.referenced += amount;
      break;
    case "trial":
    case "goodwill":
      account.recharged += amount;
      break;
    case "reversal":
      account.reversed -= amount;
      if (account.reversed > account.recharged) {
        const { reversed, recharged } = account;
        report(
          "chain",
          accountId,
          `entry ${streamId}: ${reversed} credits are reversed of ${recharged} granted`,
        );
      }
      break;
    case "adjustment":
      account.adjusted += amount;
      if (entry.reason === "") report("chain", accountId, `entry ${streamId} of ${amount} has no reason`);
  }
  const takes = kind === "adjustment" ? amount < 0 : kind === "reversal";
  if (amount === 0 || takes !== amount < 0 || entry.type !== (takes ? "consume" : "recharge"))
    report(
      "chain",
      accountId,
      `entry ${streamId} of ${amount} has the kind ${kind} and the type ${entry.type}`,
    );
  return false;
}

/** @param account as the entries before this one make it */
function checkChain({ balance, last }: AccountFold, entry: LedgerEntry, report: Report): void {
  const { accountId, amount, balanceAfter, streamId, previous, requestId } = entry;
  if (balanceAfter !== balance + amount)
    report(
      "chain",
      accountId,
      `entry ${streamId}: ${balance} and ${amount} do not make ${balanceAfter}`,
      requestId,
    );
  if (previous !== last)
    report(
      "chain",
      accountId,
      `entry ${streamId} follows ${last || "none"}, but names ${previous || "none"}`,
    );
  if (!(balanceAfter >= 0))
    report("balance", accountId, `entry ${streamId} leaves ${balanceAfter}`, requestId);
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

/** A refund is taken back once, and nothing follows it: the request counts as one of 0 credits from then on. */
function addReclaim(fold: LedgerFold, entry: LedgerEntry, report: Report): boolean {
  const { accountId, amount, requestId, streamId } = entry;
  const refunded = fold.charges.get(requestId);
  const isTrimmed = refunded === undefined && fold.left.has(accountId);
  if (!isTrimmed && amount !== refunded) {
    const what = refunded === undefined ? "what was never charged" : "what was not refunded";
    report("requests", accountId, `entry ${streamId} charges ${what} again`, requestId);
    return false;
  }
  fold.charges.set(requestId, 0);
  return true;
}

export const isCharged = ({ charges }: LedgerFold, requestId: string): boolean =>
  !charges.concerns(requestId) || charges.get(requestId) !== undefined;

/** Compares an entry with its request's record, read later: records only move on. Invariant 2. */
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
  const left =
    type === "consume" ? record.trimmed_charge : type === RECLAIM ? undefined : record.trimmed_refund;
  if (left !== undefined && left !== entry.streamId) differs(`${type} once more, after that of ${left}`);
  if (type !== "consume") {
    const isByOperator = entry.reference !== "" && record.state === "finished";
    const isChargedAgain = record.charged_again !== undefined;
    if (type === RECLAIM && !isChargedAgain) differs("charged again, but its record does not say so");
    if (record.status !== "failed" && !isByOperator && !isChargedAgain)
      differs(`refund of a task that is ${record.status ?? record.state}`);
    return;
  }
  // A void request (`reason`) returned its place in the day.
  if (record.admitted_at === undefined || record.reason !== undefined) return;
  const day = dayOf(record.admitted_at);
  const seen = fold.daily.get(entry.keyId);
  // The clock stepped back and an operator reset the key's clock: the count of that day starts again. Decision 0008.
  const wasPutBack = seen !== undefined && dayOf(entry.atMs) < seen.day;
  if (seen?.day === day) seen.count++;
  else if (!seen || seen.day < day || wasPutBack) fold.daily.set(entry.keyId, { day, count: 1 });
}
