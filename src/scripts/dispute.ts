import { taskName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

interface DisputeCall {
  taskId: string;
  /** Of the request that owns it. */
  partition: number;
  ownerId: string;
  accountId: string;
  /** How long a mark waits for the owner's BIND, which may come later. */
  lifetimeMs: number;
}

/** On a Redis Cluster: marks a task id that the upstream gave to a second request, in the partition of the first. */
export const dispute: Script<DisputeCall, { outcome: "disputed" | "noted" | "missing" }> = {
  name: "dispute",
  keys: ({ taskId, partition }) => [taskName(taskId, partition)],
  args: ({ ownerId, accountId, lifetimeMs }) => [ownerId, accountId, lifetimeMs],
  read: ([outcome]) => ({ outcome: outcome as "disputed" | "noted" | "missing" }),
};
