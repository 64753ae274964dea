import type { RequestRecord } from "../../records/records.ts";

/** `held`: sent to the upstream, no task yet. `void`: ended without a task. */
export const LISTED_STATUSES = ["held", "processing", "completed", "failed", "void"] as const;
export type ListedStatus = (typeof LISTED_STATUSES)[number];

export interface TaskView {
  requestId: string;
  taskId: string | undefined;
  accountId: string;
  keyId: string;
  endpoint: string;
  price: number;
  status: ListedStatus;
  createdAtMs: number | undefined;
  boundAtMs: number | undefined;
  finishedAtMs: number | undefined;
  refunded: boolean;
}

export function taskView(requestId: string, record: RequestRecord = {}): TaskView | undefined {
  const { state, account_id: accountId, status } = record;
  if (state === undefined || accountId === undefined) return undefined;
  const isVoid = state === "void";
  const time = (text: string | undefined): number | undefined =>
    text === undefined ? undefined : Number(text);
  return {
    requestId,
    accountId,
    taskId: record.task_id,
    keyId: record.key_id ?? "",
    endpoint: record.endpoint ?? "",
    price: record.uncollected ? 0 : Number(record.price ?? 0),
    status: state === "held" ? "held" : isVoid ? "void" : state === "bound" ? "processing" : endOf(status),
    createdAtMs: time(record.admitted_at ?? record.bound_at),
    boundAtMs: time(record.bound_at),
    finishedAtMs: time(isVoid ? record.void_at : record.finished_at),
    refunded: record.refunded === "1" && record.charged_again === undefined,
  };
}

const endOf = (status: string | undefined): ListedStatus => (status === "completed" ? "completed" : "failed");
