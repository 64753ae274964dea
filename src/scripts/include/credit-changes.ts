import type { Actor } from "../../records/actor.ts";
import { accountNames, partitionNames, requestName } from "../../records/names.ts";
import type { Reply } from "../script-definition.ts";

// Changes of an account's credits. Each has a reference, and happens once per reference.

export interface CreditChange {
  partition: number;
  accountId: string;
  reference: string;
  /** How many references of the account were forgotten when the archive was found not to have this one. */
  lookedUp?: number;
  actor: Actor;
}

/** With the reason that the operator gives. */
export interface OperatorsChange extends CreditChange {
  reason: string;
}

/** `balance`: credits that can be spent. */
export type CreditReply<Outcome extends string> =
  | { outcome: "unknown_account" }
  /** `references`: how many of the account's have been forgotten; this may be one of them. */
  | { outcome: "forgotten"; balance: number; references: number }
  | { outcome: "mismatch"; balance: number }
  | { outcome: Outcome; balance: number };

export function creditKeys({ partition, accountId }: CreditChange): string[] {
  const { account, references, checkpoint } = accountNames(partition, accountId);
  return [account, partitionNames(partition).ledger, references, checkpoint];
}

export const creditAndRequestKeys = (call: CreditChange & { requestId: string }): string[] => [
  ...creditKeys(call),
  requestName(call.partition, call.requestId),
];

export function readCreditReply<Outcome extends string>([
  outcome,
  balance,
  references,
]: Reply): CreditReply<Outcome> {
  if (outcome === "unknown_account") return { outcome };
  if (outcome === "forgotten") return { outcome, balance: Number(balance), references: Number(references) };
  return { outcome: outcome as Outcome, balance: Number(balance) };
}
