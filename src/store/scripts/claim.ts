import { claimName } from "../names.ts";
import type { Script } from "../script.ts";

export interface ClaimCall {
  taskId: string;
  requestId: string;
}

/** `ownerId`: the request that owns it. */
export type Claimed = { outcome: "taken" | "owned" } | { outcome: "conflict"; ownerId: string };

/** On a Redis Cluster: claims a task id over all partitions, before BIND. */
export const claim: Script<ClaimCall, Claimed> = {
  name: "claim",
  isBatched: false,
  keys: ({ taskId }) => [claimName(taskId)],
  args: ({ requestId }) => [requestId],
  read([outcome, , ownerId]) {
    if (outcome === "conflict") return { outcome, ownerId: String(ownerId) };
    return { outcome: outcome as "taken" | "owned" };
  },
};
