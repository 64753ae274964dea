import { actorText } from "../records/actor.ts";
import { type GrantKind, storedKind } from "../records/ledger-entries.ts";
import {
  type CreditChange,
  type CreditReply,
  creditKeys,
  readCreditReply,
} from "./include/credit-changes.ts";
import type { Script } from "./script-definition.ts";

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
