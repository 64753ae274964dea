import { type Actor, actorText } from "../actor.ts";
import type { LedgerEntry } from "../ledger-entries.ts";
import { accountNames, partitionNames, requestName } from "../names.ts";
import type { Script } from "../script-definition.ts";

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
  charge?: LedgerEntry | undefined;
  actor: Actor;
}

export type Refunded =
  | { outcome: "unknown_account" }
  /** `references`: how many of the account's have been forgotten; this may be one of them. */
  | { outcome: "forgotten"; balance: number; references: number }
  /** `balance`: credits that can be spent. */
  | {
      outcome:
        | "refunded"
        | "duplicate"
        | "mismatch"
        | "refunded_before"
        | "unfinished"
        | "uncharged"
        | "search";
      balance: number;
    };

/** A charge comes so long after its admission at most, but for a rare one whose outcome was unknown for longer. */
const BOUND_AFTER_MAX_MS = 3_600_000;

/** The month of a request's admission is that of its charge, unless that was made just after midnight. */
function admittedMs({ atMs }: LedgerEntry): number | "" {
  const month = (ms: number): number => new Date(ms).getUTCMonth();
  return month(atMs) === month(atMs - BOUND_AFTER_MAX_MS) ? atMs : "";
}

/** Refunds a finished task, once. */
export const refund: Script<RefundCall, Refunded> = {
  name: "refund",
  isBatched: false,
  keys({ partition, accountId, requestId }) {
    const { account, references, checkpoint, refunds } = accountNames(partition, accountId);
    const { ledger } = partitionNames(partition);
    return [account, ledger, references, checkpoint, refunds, requestName(partition, requestId)];
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
