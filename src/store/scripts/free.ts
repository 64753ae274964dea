import { claimName } from "../names.ts";
import type { Script } from "../script.ts";
import type { OwnCall } from "./own.ts";

/** On a Redis Cluster: gives a task id back once its request is forgotten. */
export const free: Script<OwnCall, { outcome: "freed" | "kept" }> = {
  name: "free",
  isBatched: false,
  keys: ({ taskId }) => [claimName(taskId)],
  args: ({ requestId }) => [requestId],
  read: ([outcome]) => ({ outcome: outcome as "freed" | "kept" }),
};
