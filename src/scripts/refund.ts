import { monthOf } from "../domain/moments.ts";
import { actorText } from "../records/actor.ts";
import type { LedgerEntry } from "../records/ledger-entries.ts";
import {
  type CreditReply,
  creditAndRequestKeys,
  type OperatorsChange,
  readCreditReply,
} from "./include/credit-changes.ts";
import type { Script } from "./script-definition.ts";

/** A charge of which it may be known when its request was admitted, Unix ms: it was in another month than the charge tells. */
export type ChargeEntry = LedgerEntry & { admittedMs?: number | undefined };

export interface RefundCall extends OperatorsChange {
  requestId: string;
  /** Its charge, of which ledger and archive have no refund; needed where the request's record does not say so. */
  charge?: ChargeEntry | undefined;
}

type RefundOutcome =
  | ("refunded" | "duplicate" | "refunded_before" | "charged_again")
  | ("unfinished" | "uncharged" | "search");
export type Refunded = CreditReply<RefundOutcome>;

/** A request is charged at most so long after its admission, but for a rare one. */
const HOUR_MS = 3_600_000;

/** A time in the month of the admission of a charge, which lua/bind.lua writes where it is not that of an hour before; else empty. */
function admittedMs({ atMs, admittedMs: noted }: ChargeEntry): number | "" {
  if (noted !== undefined) return noted;
  return monthOf(atMs) === monthOf(atMs - HOUR_MS) ? atMs : "";
}

export const refund: Script<RefundCall, Refunded> = {
  name: "refund",
  keys: creditAndRequestKeys,
  args({ accountId, requestId, reference, reason, lookedUp = 0, actor, charge }) {
    const found = charge
      ? [-charge.amount, charge.endpoint, charge.taskId, charge.keyId, admittedMs(charge)]
      : ["", "", "", "", ""];
    return [accountId, requestId, reference, reason, lookedUp, actorText(actor), ...found];
  },
  read: readCreditReply,
};
