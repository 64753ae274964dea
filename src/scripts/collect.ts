import { accountNames, archiveNames, partitionNames, requestName, taskName } from "../records/names.ts";
import type { Script } from "./script-definition.ts";

export interface CollectCall {
  partition: number;
  requestId: string;
  taskId: string | undefined;
  /** The name of its task's claim, where the script can reach it. */
  claim?: string | undefined;
  /** Of a request that was restored; all others have their own in their record. */
  retentionMs: number;
}

/** `missing`: another collector was first. `unarchived`: the archive has not got it yet. */
export type Collected = "collected" | "kept" | "unarchived" | "missing";

export const collect: Script<CollectCall, { outcome: Collected }> = {
  name: "collect",
  keys({ partition, requestId, taskId, claim }) {
    const keys = [requestName(partition, requestId), partitionNames(partition).done];
    if (taskId) keys.push(taskName(taskId, partition));
    if (taskId && claim !== undefined) keys.push(claim);
    return keys;
  },
  args({ partition, requestId, retentionMs }) {
    const { account } = accountNames(partition, "");
    return [requestId, Math.round(retentionMs), account, archiveNames(partition).archive];
  },
  read: ([outcome]) => ({ outcome: outcome as Collected }),
};
