import { monthOf } from "../domain/months.ts";
import { type Actor, actorText } from "../records/actor.ts";
import type { LedgerEntry } from "../records/ledger-entries.ts";
import { accountNames, partitionNames, requestName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

/** A charge of which it may be known when its request was admitted, Unix ms: it was in another month than the charge tells. */
export type ChargeEntry = LedgerEntry & { admittedMs?: number | undefined };

export interface RefundCall {
  partition: number;
  accountId: string;
  requestId: string;
  reference: string;
  /** The operator's. */
  reason: string;
  /** How many references of the account were forgotten when the archive was found not to have this one. */
  lookedUp?: number;
  /** Its charge, of which ledger and archive have no refund; needed where the request's record does not say so. */
  charge?: ChargeEntry | undefined;
  actor: Actor;
}

export type Refunded =
  | { outcome: "unknown_account" }
  /** `references`: how many of the account's have been forgotten; this may be one of them. */
  | { outcome: "forgotten"; balance: number; references: number }
  /** `balance`: credits that can be spent. */
  | { outcome: "mismatch"; balance: number }
  | {
      outcome:
        | "refunded"
        | "duplicate"
        | "refunded_before"
        | "charged_again"
        | "unfinished"
        | "uncharged"
        | "search";
      balance: number;
    };

/** A request is charged at most so long after its admission, but for a rare one. */
const HOUR_MS = 3_600_000;

/**
 * A time in the month in which the request of a charge was admitted; empty if that is not known. lua/bind.lua writes into the
 * charge when it was, where it is not the month an hour before the charge.
 */
function admittedMs({ atMs, admittedMs: noted }: ChargeEntry): number | "" {
  if (noted !== undefined) return noted;
  return monthOf(atMs) === monthOf(atMs - HOUR_MS) ? atMs : "";
}

/** Refunds a finished task, once. */
export const refund: Script<RefundCall, Refunded> = {
  name: "refund",
  isBatched: false,
  keys({ partition, accountId, requestId }) {
    const { account, references, checkpoint } = accountNames(partition, accountId);
    const { ledger } = partitionNames(partition);
    return [account, ledger, references, checkpoint, requestName(partition, requestId)];
  },
  args({ accountId, requestId, reference, reason, lookedUp = 0, actor, charge }) {
    const found = charge
      ? [-charge.amount, charge.endpoint, charge.taskId, charge.keyId, admittedMs(charge)]
      : ["", "", "", "", ""];
    return [accountId, requestId, reference, reason, lookedUp, actorText(actor), ...found];
  },
  read([outcome, balance, references]) {
    if (outcome === "unknown_account") return { outcome };
    if (outcome === "forgotten") return { outcome, balance: Number(balance), references: Number(references) };
    return { outcome: outcome as "refunded", balance: Number(balance) };
  },
};
