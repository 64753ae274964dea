import { accountNames, partitionNames, requestName, taskName } from "../names.ts";
import type { Script } from "../script.ts";

export interface CollectCall {
  partition: number;
  requestId: string;
  /** The request's task, if it has one. */
  taskId: string | undefined;
  /** Whether the store is a Redis Cluster, where tasks are kept in partitions. */
  clustered: boolean;
  /** Of a request of an earlier release; all others have their own in their record. */
  retentionMs: number;
}

/** Forgets an ended request after its retention. */
export const collect: Script<CollectCall, { outcome: "collected" | "kept" }> = {
  name: "collect",
  isBatched: false,
  keys({ partition, requestId, taskId, clustered }) {
    const keys = [requestName(partition, requestId), partitionNames(partition).done];
    if (taskId) keys.push(taskName(taskId, partition, clustered));
    return keys;
  },
  args({ partition, requestId, retentionMs }) {
    return [requestId, Math.round(retentionMs), accountNames(partition, "").account];
  },
  read: ([outcome]) => ({ outcome: outcome as "collected" | "kept" }),
};
