import { type Actor, actorText } from "../records/actor.ts";
import { type GrantKind, storedKind } from "../records/ledger-entries.ts";
import { accountNames, partitionNames } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

interface RechargeCall {
  partition: number;
  accountId: string;
  /** Whole credits, positive. */
  amount: number;
  reference: string;
  kind?: GrantKind;
  /** Details of the entry, JSON; may be empty. */
  details?: string;
  /** How many references of the account were forgotten when the archive was found not to have this one. */
  lookedUp?: number;
  actor: Actor;
}

export type Recharged =
  | { outcome: "unknown_account" }
  /** `references`: how many of the account's have been forgotten; this may be one of them. */
  | { outcome: "forgotten"; balance: number; references: number }
  /** `balance`: credits that can be spent. */
  | { outcome: "mismatch"; balance: number }
  | { outcome: "recharged" | "duplicate" | "too_large" | "closed"; balance: number };

/** Credits an account, once per reference. */
export const recharge: Script<RechargeCall, Recharged> = {
  name: "recharge",
  isBatched: false,
  keys({ partition, accountId }) {
    const { account, references, checkpoint } = accountNames(partition, accountId);
    return [account, partitionNames(partition).ledger, references, checkpoint];
  },
  args: ({ accountId, amount, reference, kind = "purchase", details = "", lookedUp = 0, actor }) => [
    accountId,
    amount,
    reference,
    lookedUp,
    actorText(actor),
    storedKind(kind),
    details,
  ],
  read([outcome, balance, references]) {
    if (outcome === "unknown_account") return { outcome };
    if (outcome === "forgotten") return { outcome, balance: Number(balance), references: Number(references) };
    return { outcome: outcome as "recharged", balance: Number(balance) };
  },
};
