import { type Actor, actorText } from "../records/actor.ts";
import { accountNames, partitionNames } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

export interface ReverseCall {
  partition: number;
  accountId: string;
  /** The reference of the grant. */
  of: string;
  /** Whole credits, positive; undefined: all that is left. */
  amount?: number | undefined;
  /** The meaning of the grant's reference, if the caller has found it in the ledger or the archive. */
  granted?: string | undefined;
  reference: string;
  /** The operator's. */
  reason: string;
  /** How many references of the account were forgotten when the archive was found not to have this one. */
  lookedUp?: number;
  actor: Actor;
}

type Reversed =
  | { outcome: "unknown_account" }
  /** `references`: how many of the account's have been forgotten; this may be one of them. */
  | { outcome: "forgotten"; balance: number; references: number }
  | { outcome: "mismatch"; balance: number }
  /** `balance`: credits that can be spent. `left`: what was not reversed of the grant. */
  | { outcome: "nothing_left"; balance: number; left: number }
  | { outcome: "reversed" | "duplicate" | "no_grant"; balance: number };

/** Takes back what is left of a grant, once per reference. */
export const reverse: Script<ReverseCall, Reversed> = {
  name: "reverse",
  isBatched: false,
  keys({ partition, accountId }) {
    const { account, references, checkpoint, reversed } = accountNames(partition, accountId);
    return [account, partitionNames(partition).ledger, references, checkpoint, reversed];
  },
  args: ({ accountId, of, amount = "", granted = "", reference, reason, lookedUp = 0, actor }) => [
    ...[accountId, of, amount, granted, reference, reason, lookedUp],
    actorText(actor),
  ],
  read([outcome, balanceText, number]) {
    const balance = Number(balanceText);
    switch (outcome) {
      case "unknown_account":
        return { outcome };
      case "forgotten":
        return { outcome, balance, references: Number(number) };
      case "nothing_left":
        return { outcome, balance, left: Number(number) };
      default:
        return { outcome: outcome as "reversed", balance };
    }
  },
};
