import { actorText } from "../records/actor.ts";
import {
  type CreditReply,
  creditAndRequestKeys,
  type OperatorsChange,
  readCreditReply,
} from "./include/credit-changes.ts";
import type { Script } from "./script-definition.ts";

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
