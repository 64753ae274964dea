import { accountNames, keyNames, partitionNames, requestName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

/** Holds of a partition that are read at one instant: about a millisecond of Redis. */
const HOLDS_AT_ONCE = 150;

interface HoldingCall {
  partition: number;
  accountId: string;
}

/** `held` is what the account says, `holds` what its holds add up to: whole credits. */
type HoldingReply = { outcome: "too_many" } | { outcome: "read"; held: number; holds: number };

export const holding: Script<HoldingCall, HoldingReply> = {
  name: "holding",
  keys: ({ partition, accountId }) => [
    accountNames(partition, accountId).account,
    partitionNames(partition).due,
  ],
  args: ({ partition, accountId }) => [
    accountId,
    HOLDS_AT_ONCE,
    keyNames(partition, "").slots,
    requestName(partition, ""),
  ],
  read([outcome, , held, holds]) {
    if (outcome === "too_many") return { outcome };
    return { outcome: "read", held: Number(held), holds: Number(holds) };
  },
};
