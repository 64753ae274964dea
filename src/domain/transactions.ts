import type { Transaction } from "./answers.ts";

/** How many GET /credits shows. */
export const RECENT_TRANSACTIONS = 10;

/** What a ledger entry says of it. */
interface Entry {
  /** The account's, which makes the id unique over all ledgers. */
  partition: number;
  streamId: string;
  type: string;
  amount: number;
  balanceAfter: number;
  endpoint: string;
  reason: string;
  taskId: string;
  /** Unix ms. */
  atMs: number;
}

/** A ledger entry as customers see it. */
export function transactionOf(entry: Entry): Transaction {
  const { partition, streamId, type, amount, balanceAfter, endpoint, reason, taskId, atMs } = entry;
  return {
    id: transactionId(partition, streamId),
    type: type === "consume" ? "consume" : "recharge",
    amount,
    balance_after: balanceAfter,
    // A refund is a recharge, and the API has `endpoint` on consume transactions only.
    ...(type === "consume" && endpoint !== "" ? { endpoint } : {}),
    ...(reason === "" ? {} : { reason, task_id: taskId }),
    created_at: new Date(atMs).toISOString(),
  };
}

/** The public id of a ledger entry: where it stands. */
export const transactionId = (partition: number, streamId: string): string => `txn_${partition}_${streamId}`;
