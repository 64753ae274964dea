import type { Tiers } from "../domain/limits.ts";
import { type KeyRef, taskName } from "../records/names.ts";
import { type AccountStatus, statusOf } from "../records/records.ts";
import { clockOf, KEY_STATE_LENGTH, type KeyState, keyStateOf } from "./include/limits.ts";
import type { Script } from "./script-definition.ts";

interface InspectCall {
  key: KeyRef;
  tiers: Tiers;
  task?: {
    taskId: string;
    /** How old a cached answer may be, ms. */
    cacheMs: number;
  };
}

/** The record of a polled task. `data` is JSON, empty before the first observation. */
export interface KnownTask {
  taskId: string;
  requestId: string;
  /** Key that created it: whose slot it holds. */
  creatorKeyId: string;
  fresh: boolean;
  status: string;
  data: string;
  /** When it was bound, Unix ms. */
  createdAtMs: number;
  /** How long ago that is by the store's clock. */
  ageMs: number;
  /** Fixed when it was bound; undefined while `fresh`, and for a task that was restored. */
  maxAgeMs: number | undefined;
  /** Which upstream made it; undefined as `maxAgeMs` is. */
  upstream: string | undefined;
}

export type Inspection = KeyState &
  (
    | { outcome: "unknown_key" }
    /** The account is closed. */
    | { outcome: "account_suspended"; status: "closed" }
    | { outcome: "known" | "not_found"; status: AccountStatus }
    | { outcome: "task"; status: AccountStatus; task: KnownTask }
  );

export const inspect: Script<InspectCall, Inspection> = {
  name: "inspect",
  isBatched: true,
  keys({ key: { names, partition }, task }) {
    const keys = [names.key, names.window, names.slots, names.account];
    if (task) keys.push(taskName(task.taskId, partition));
    return keys;
  },
  tiers: ({ tiers }) => tiers,
  args: ({ task }) => [task?.cacheMs ?? 0],
  read(reply, call) {
    const common = keyStateOf(reply);
    if (reply[0] === "unknown_key") return { outcome: "unknown_key", ...common };
    const [accountStatus, ...rest] = reply.slice(KEY_STATE_LENGTH);
    const outcome = reply[0] as "known" | "not_found" | "account_suspended" | "task";
    if (outcome === "account_suspended") return { outcome, ...common, status: "closed" };
    const known = { ...common, status: statusOf(accountStatus) };
    if (outcome !== "task") return { outcome, ...known };
    const [requestId, creatorKeyId, fresh, status, data, createdAtMs, maxAgeMs, upstream] = rest;
    const task = {
      taskId: call.task!.taskId,
      requestId: String(requestId),
      creatorKeyId: String(creatorKeyId),
      fresh: fresh === 1,
      status: String(status),
      data: String(data),
      createdAtMs: Number(createdAtMs),
      ageMs: clockOf(reply) - Number(createdAtMs),
      maxAgeMs: maxAgeMs ? Number(maxAgeMs) : undefined,
      upstream: upstream ? String(upstream) : undefined,
    };
    return { outcome, ...known, task };
  },
};
