import { monthOf } from "../domain/moments.ts";
import { type Actor, actorText } from "../records/actor.ts";
import { type GrantKind, type LedgerEntry, storedKind } from "../records/ledger-entries.ts";
import { accountNames, partitionNames, requestName } from "../records/names.ts";
import type { Reply, Script } from "./script-definition.ts";

// Changes of an account's credits. Each has a reference, and happens once per reference.

interface CreditChange {
  partition: number;
  accountId: string;
  reference: string;
  /** How many references of the account were forgotten when the archive was found not to have this one. */
  lookedUp?: number;
  actor: Actor;
}

interface OperatorsChange extends CreditChange {
  reason: string;
}

/** `balance`: credits that can be spent. */
type CreditReply<Outcome extends string> =
  | { outcome: "unknown_account" }
  /** `references`: how many of the account's have been forgotten; this may be one of them. */
  | { outcome: "forgotten"; balance: number; references: number }
  | { outcome: "mismatch"; balance: number }
  | { outcome: Outcome; balance: number };

function creditKeys({ partition, accountId }: CreditChange): string[] {
  const { account, references, checkpoint } = accountNames(partition, accountId);
  return [account, partitionNames(partition).ledger, references, checkpoint];
}

const creditAndRequestKeys = (call: CreditChange & { requestId: string }): string[] => [
  ...creditKeys(call),
  requestName(call.partition, call.requestId),
];

function readCreditReply<Outcome extends string>([
  outcome,
  balance,
  references,
]: Reply): CreditReply<Outcome> {
  if (outcome === "unknown_account") return { outcome };
  if (outcome === "forgotten") return { outcome, balance: Number(balance), references: Number(references) };
  return { outcome: outcome as Outcome, balance: Number(balance) };
}

interface RechargeCall extends CreditChange {
  amount: number;
  kind?: GrantKind;
  /** Details of the entry, JSON; may be empty. */
  details?: string;
}

type Recharged = CreditReply<"recharged" | "duplicate" | "too_large" | "closed">;

export const recharge: Script<RechargeCall, Recharged> = {
  name: "recharge",
  keys: creditKeys,
  args: ({ accountId, amount, reference, kind = "purchase", details = "", lookedUp = 0, actor }) => [
    ...[accountId, amount, reference, lookedUp],
    ...[actorText(actor), storedKind(kind), details],
  ],
  read: readCreditReply,
};

export interface AdjustCall extends OperatorsChange {
  /** Whole credits, not 0; negative takes credits. */
  amount: number;
}

export const adjust: Script<AdjustCall, CreditReply<"adjusted" | "duplicate" | "too_low" | "too_large">> = {
  name: "adjust",
  keys: creditKeys,
  args: ({ accountId, amount, reference, reason, lookedUp = 0, actor }) => [
    ...[accountId, amount, reference, reason, lookedUp, actorText(actor)],
  ],
  read: readCreditReply,
};

export interface ReverseCall extends OperatorsChange {
  /** The reference of the grant. */
  of: string;
  /** Whole credits, positive; undefined: all that is left. */
  amount?: number | undefined;
  /** The meaning of the grant's reference, if the caller has found it in the ledger or the archive. */
  granted?: string | undefined;
}

type Reversed =
  | CreditReply<"reversed" | "duplicate" | "no_grant">
  /** `left`: what was not reversed of the grant. */
  | { outcome: "nothing_left"; balance: number; left: number };

export const reverse: Script<ReverseCall, Reversed> = {
  name: "reverse",
  keys: (call) => [...creditKeys(call), accountNames(call.partition, call.accountId).reversed],
  args: ({ accountId, of, amount = "", granted = "", reference, reason, lookedUp = 0, actor }) => [
    ...[accountId, of, amount, granted, reference, reason, lookedUp],
    actorText(actor),
  ],
  read(reply) {
    const [outcome, balance, left] = reply;
    if (outcome === "nothing_left") return { outcome, balance: Number(balance), left: Number(left) };
    return readCreditReply(reply);
  },
};

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

/** A time in the month of the admission of a charge, which lua/generations/bind.lua writes where it is not that of an hour before; else empty. */
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

interface CorrectCall extends OperatorsChange {
  requestId: string;
  credits: number;
}

export const correct: Script<
  CorrectCall,
  CreditReply<"corrected" | "duplicate" | "refunded_before" | "unfinished">
> = {
  name: "correct",
  keys: creditAndRequestKeys,
  args: ({ accountId, requestId, credits, reference, reason, lookedUp = 0, actor }) => [
    ...[accountId, requestId, credits, reference, reason, lookedUp],
    actorText(actor),
  ],
  read: readCreditReply,
};
