import { claimName } from "../names.ts";
import type { Script } from "../script.ts";
import type { ClaimCall } from "./claim.ts";

/** On a Redis Cluster: releases a task id when its request is collected. */
export const unclaim: Script<ClaimCall, { outcome: "unclaimed" | "kept" }> = {
  name: "unclaim",
  isBatched: false,
  keys: ({ taskId }) => [claimName(taskId)],
  args: ({ requestId }) => [requestId],
  read: ([outcome]) => ({ outcome: outcome as "unclaimed" | "kept" }),
};
