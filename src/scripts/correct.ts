import { type Actor, actorText } from "../records/actor.ts";
import { accountNames, partitionNames, requestName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

interface CorrectCall {
  partition: number;
  accountId: string;
  requestId: string;
  /** Whole credits that go back, positive. */
  credits: number;
  reference: string;
  /** The operator's. */
  reason: string;
  /** How many references of the account were forgotten when the archive was found not to have this one. */
  lookedUp?: number;
  actor: Actor;
}

type Corrected =
  | { outcome: "unknown_account" }
  /** `references`: how many of the account's have been forgotten; this may be one of them. */
  | { outcome: "forgotten"; balance: number; references: number }
  | { outcome: "mismatch"; balance: number }
  /** `balance`: credits that can be spent. */
  | { outcome: "corrected" | "duplicate" | "refunded_before" | "unfinished"; balance: number };

/** Gives back a part of a charge whose price was wrong, once per request. */
export const correct: Script<CorrectCall, Corrected> = {
  name: "correct",
  isBatched: false,
  keys({ partition, accountId, requestId }) {
    const { account, references, checkpoint } = accountNames(partition, accountId);
    const { ledger } = partitionNames(partition);
    return [account, ledger, references, checkpoint, requestName(partition, requestId)];
  },
  args: ({ accountId, requestId, credits, reference, reason, lookedUp = 0, actor }) => [
    ...[accountId, requestId, credits, reference, reason, lookedUp],
    actorText(actor),
  ],
  read([outcome, balance, references]) {
    if (outcome === "unknown_account") return { outcome };
    if (outcome === "forgotten") return { outcome, balance: Number(balance), references: Number(references) };
    return { outcome: outcome as "corrected", balance: Number(balance) };
  },
};
