import { type Actor, actorText } from "../records/actor.ts";
import { accountNames, partitionNames } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

export interface AdjustCall {
  partition: number;
  accountId: string;
  /** Whole credits, not 0; negative takes credits. */
  amount: number;
  reference: string;
  /** The operator's. */
  reason: string;
  /** How many references of the account were forgotten when the archive was found not to have this one. */
  lookedUp?: number;
  actor: Actor;
}

type Adjusted =
  | { outcome: "unknown_account" }
  /** `references`: how many of the account's have been forgotten; this may be one of them. */
  | { outcome: "forgotten"; balance: number; references: number }
  /** `balance`: credits that can be spent. */
  | { outcome: "mismatch"; balance: number }
  | { outcome: "adjusted" | "duplicate" | "too_low" | "too_large"; balance: number };

/** Corrects an account's balance by hand, once per reference. */
export const adjust: Script<AdjustCall, Adjusted> = {
  name: "adjust",
  isBatched: false,
  keys({ partition, accountId }) {
    const { account, references, checkpoint } = accountNames(partition, accountId);
    return [account, partitionNames(partition).ledger, references, checkpoint];
  },
  args: ({ accountId, amount, reference, reason, lookedUp = 0, actor }) => [
    accountId,
    amount,
    reference,
    reason,
    lookedUp,
    actorText(actor),
  ],
  read([outcome, balance, references]) {
    if (outcome === "unknown_account") return { outcome };
    if (outcome === "forgotten") return { outcome, balance: Number(balance), references: Number(references) };
    return { outcome: outcome as "adjusted", balance: Number(balance) };
  },
};
