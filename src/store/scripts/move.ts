import { claimName, earlierTaskName, requestName, taskName } from "../names.ts";
import type { Script } from "../script-definition.ts";

export interface MoveCall {
  taskId: string;
  /** The request that owns the task id, by the record in layout 1, and the partition of its account. */
  requestId: string;
  partition: number;
}

/** `conflict`: another request has bound the same task id, and both tasks are disputed. */
export type Moved = "moved" | "missing" | "dropped" | "conflict";

/** Brings the record of one task from layout 1 to layout 2. */
export const move: Script<MoveCall, { outcome: Moved }> = {
  name: "move",
  isBatched: true,
  keys: ({ taskId, requestId, partition }) => [
    earlierTaskName(taskId),
    taskName(taskId, partition),
    claimName(taskId),
    requestName(partition, requestId),
  ],
  args: ({ requestId }) => [requestId],
  read: ([outcome]) => ({ outcome: outcome as Moved }),
};
