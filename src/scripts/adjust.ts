import { actorText } from "../records/actor.ts";
import {
  type CreditReply,
  creditKeys,
  type OperatorsChange,
  readCreditReply,
} from "./include/credit-changes.ts";
import type { Script } from "./script-definition.ts";

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
