import { keyRef, requestName, taskName } from "../records/names.ts";
import type { ObservedTask } from "./observe.ts";
import type { Script } from "./script-definition.ts";

export interface ReclaimCall {
  partition: number;
  accountId: string;
  task: ObservedTask;
  /** The completed task, JSON. */
  data: string;
}

/** `charged_again`: completed now, at `credits`. `uncovered`: the balance does not allow it. `finished`: it has another end. */
interface Reclaimed {
  outcome: "charged_again" | "uncovered" | "finished";
  credits: number;
}

/** Charges a task again that ended as too old, was refunded and has completed after all. Once. */
export const reclaim: Script<ReclaimCall, Reclaimed> = {
  name: "reclaim",
  keys({ partition, accountId, task: { taskId, requestId, creatorKeyId } }) {
    const { account, ledger, done, key } = keyRef(creatorKeyId, accountId, partition).names;
    return [taskName(taskId, partition), requestName(partition, requestId), account, ledger, done, key];
  },
  args: ({ accountId, task, data }) => [task.requestId, accountId, data],
  read: ([outcome, , credits]) => ({
    outcome: outcome as Reclaimed["outcome"],
    credits: Number(credits ?? 0),
  }),
};
