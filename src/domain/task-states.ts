export const TASK_STATUSES = ["pending", "processing", "completed", "failed"] as const;
export type TaskStatus = (typeof TASK_STATUSES)[number];

export type Observation = TaskStatus | "gone" | "expired" | "released";

/** `.` and `..` would be steps in a path. No look-ahead, which many languages lack. */
export const TASK_ID =
  /^(?:[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,199}|\.[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,198}|\.\.[A-Za-z0-9_.~-]{1,198})$/;

export const isTaskStatus = (value: unknown): value is TaskStatus =>
  (TASK_STATUSES as readonly unknown[]).includes(value);

/** Lower case, with `_` between words. */
export type StatusWords = Readonly<Record<string, TaskStatus>>;

/** Words of other APIs. `upstream.statuses` adds to them and overrides them. */
export const STATUS_WORDS: StatusWords = {
  ...wordsFor("pending", "pending queued in_queue waiting submitted scheduled created accepted not_started"),
  ...wordsFor(
    "processing",
    "processing running in_progress inprogress generating rendering started starting working",
  ),
  ...wordsFor("completed", "completed complete succeeded success succeed successful done finished"),
  ...wordsFor(
    "failed",
    "failed fail failure error errored cancelled canceled expired timeout timed_out aborted rejected",
  ),
};

function wordsFor(status: TaskStatus, words: string): StatusWords {
  return Object.fromEntries(words.split(" ").map((word) => [word, status]));
}

const STATUS_WORD_CHARS_MAX = 64;

export const statusWord = (text: string): string =>
  text
    .slice(0, STATUS_WORD_CHARS_MAX + 1)
    .trim()
    .toLowerCase()
    .replace(/[ -]/g, "_");

export function taskStatusOf(text: string, own?: StatusWords): TaskStatus | undefined {
  const word = statusWord(text);
  if (own && Object.hasOwn(own, word)) return own[word];
  return Object.hasOwn(STATUS_WORDS, word) ? STATUS_WORDS[word] : undefined;
}

export const isFinal = (status: string): boolean => status === "completed" || status === "failed";

/** At the maximum age at the latest, beyond it as often as before. */
export const nextPollMs = (everyMs: number, ageMs: number, maxAgeMs: number): number =>
  ageMs < maxAgeMs ? Math.min(everyMs, maxAgeMs - ageMs) : everyMs;

export const failedTaskJson = (taskId: string, createdAtMs: number): string =>
  ownData(taskId, "failed", createdAtMs);

export const pendingTaskJson = (taskId: string, createdAtMs: number): string =>
  ownData(taskId, "pending", createdAtMs);

function ownData(taskId: string, status: TaskStatus, createdAtMs: number): string {
  return JSON.stringify({ task_id: taskId, status, created_at: new Date(createdAtMs).toISOString() });
}
