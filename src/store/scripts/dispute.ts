import { taskName } from "../names.ts";
import type { Script } from "../script.ts";

export interface DisputeCall {
  taskId: string;
  /** The partition to look in: which one has the owner's record is not known. */
  partition: number;
  /** The request that owns the task id. */
  ownerId: string;
  /** Of the second request. */
  accountId: string;
  /** How long a mark waits for the owner's BIND, which may come later; 0 for no mark. */
  lifetimeMs: number;
}

/** On a Redis Cluster: marks a task id that the upstream gave to a second request. */
export const dispute: Script<DisputeCall, { outcome: "disputed" | "noted" | "missing" }> = {
  name: "dispute",
  isBatched: false,
  keys: ({ taskId, partition }) => [taskName(taskId, partition, true)],
  args: ({ ownerId, accountId, lifetimeMs }) => [ownerId, accountId, lifetimeMs],
  read: ([outcome]) => ({ outcome: outcome as "disputed" | "noted" | "missing" }),
};
