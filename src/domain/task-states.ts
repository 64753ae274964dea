/** Task states as customers see them. */
export const TASK_STATUSES = ["pending", "processing", "completed", "failed"] as const;
export type TaskStatus = (typeof TASK_STATUSES)[number];

/** What the store can be told of a task: a status, or that it is gone (404), too old, or released by an operator. */
export type Observation = TaskStatus | "gone" | "expired" | "released";

/**
 * A task id that may be bound and asked for; anything else makes no sense. `.` and `..` are none: a URL parser
 * on the way would take them for steps in a path. In three cases, since many languages' patterns have no look-ahead.
 */
export const TASK_ID =
  /^(?:[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,199}|\.[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,198}|\.\.[A-Za-z0-9_.~-]{1,198})$/;

export const isTaskStatus = (value: unknown): value is TaskStatus =>
  (TASK_STATUSES as readonly unknown[]).includes(value);

/** Completed and failed are the end of polling. */
export const isFinal = (status: string): boolean => status === "completed" || status === "failed";

/**
 * When to ask again about a task that has not ended, ms from now: at the latest when it reaches its maximum age; beyond it
 * as often as before, since what was answered did not end it.
 */
export const nextPollMs = (everyMs: number, ageMs: number, maxAgeMs: number): number =>
  ageMs < maxAgeMs ? Math.min(everyMs, maxAgeMs - ageMs) : everyMs;

/** The task data, JSON, answered for a task that ended as failed without the upstream saying so. */
export const failedTaskJson = (taskId: string, createdAtMs: number): string =>
  ownData(taskId, "failed", createdAtMs);

/** The task data, JSON, answered for a task of which the upstream has said nothing that can be believed. */
export const pendingTaskJson = (taskId: string, createdAtMs: number): string =>
  ownData(taskId, "pending", createdAtMs);

function ownData(taskId: string, status: TaskStatus, createdAtMs: number): string {
  return JSON.stringify({ task_id: taskId, status, created_at: new Date(createdAtMs).toISOString() });
}
