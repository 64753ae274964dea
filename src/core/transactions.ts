import type { Transaction } from "./answers.ts";

/**
 * Reads one line of an account's recent transactions: stream id, type, amount, balance after, endpoint, reason,
 * task id and Unix ms, joined by `|` (none of which can hold one).
 * @param partition the account's, which makes the id unique over all ledgers
 */
export function parseTransaction(line: string, partition: number): Transaction {
  const [id = "", type, amount, balance, endpoint, reason, taskId, at] = line.split("|");
  return {
    id: transactionId(partition, id),
    type: type === "consume" ? "consume" : "recharge",
    amount: Number(amount),
    balance_after: Number(balance),
    // A refund is a recharge, and the spec shows `endpoint` on consume transactions only.
    ...(type === "consume" && endpoint ? { endpoint } : {}),
    ...(reason ? { reason, task_id: taskId ?? "" } : {}),
    created_at: new Date(Number(at)).toISOString(),
  };
}

/** The public id of a ledger entry: where it stands. */
export const transactionId = (partition: number, streamId: string): string => `txn_${partition}_${streamId}`;
