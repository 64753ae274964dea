import { accountNames, partitionNames } from "../names.ts";
import type { Script } from "../script-definition.ts";

export interface RechargeCall {
  partition: number;
  accountId: string;
  /** Whole credits, positive. */
  amount: number;
  reference: string;
}

export type Recharged =
  | { outcome: "unknown_account" }
  /** `balance`: credits that can be spent. */
  | { outcome: "recharged" | "duplicate" | "mismatch" | "too_large"; balance: number };

/** Credits an account, once per reference. */
export const recharge: Script<RechargeCall, Recharged> = {
  name: "recharge",
  isBatched: false,
  keys({ partition, accountId }) {
    const { account, references } = accountNames(partition, accountId);
    return [account, partitionNames(partition).ledger, references];
  },
  args: ({ accountId, amount, reference }) => [accountId, amount, reference],
  read([outcome, balance]) {
    if (outcome === "unknown_account") return { outcome };
    return {
      outcome: outcome as "recharged" | "duplicate" | "mismatch" | "too_large",
      balance: Number(balance),
    };
  },
};
