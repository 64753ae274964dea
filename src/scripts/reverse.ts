import { actorText } from "../records/actor.ts";
import { accountNames } from "../records/names.ts";
import {
  type CreditReply,
  creditKeys,
  type OperatorsChange,
  readCreditReply,
} from "./include/credit-changes.ts";
import type { Script } from "./script-definition.ts";

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
