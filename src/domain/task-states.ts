export const TASK_STATUSES = ["pending", "processing", "completed", "failed"] as const;
export type TaskStatus = (typeof TASK_STATUSES)[number];

export type Observation = TaskStatus | "gone" | "expired" | "released";

/** `.` and `..` would be steps in a path. No look-ahead, which many languages lack. */
export const TASK_ID =
  /^(?:[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,199}|\.[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,198}|\.\.[A-Za-z0-9_.~-]{1,198})$/;

export const isTaskStatus = (value: unknown): value is TaskStatus =>
  (TASK_STATUSES as readonly unknown[]).includes(value);

export const isFinal = (status: string): boolean => status === "completed" || status === "failed";

export const failedTaskJson = (taskId: string, createdAtMs: number): string =>
  ownData(taskId, "failed", createdAtMs);

export const pendingTaskJson = (taskId: string, createdAtMs: number): string =>
  ownData(taskId, "pending", createdAtMs);

function ownData(taskId: string, status: TaskStatus, createdAtMs: number): string {
  return JSON.stringify({ task_id: taskId, status, created_at: new Date(createdAtMs).toISOString() });
}
