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

/** Words for task states in lower case, with `_` between words, and the state that each means. */
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

/** Longer texts are no state. */
const STATUS_WORD_CHARS_MAX = 64;

/** A word as it is looked up: `In Progress` and `IN-PROGRESS` are `in_progress`. */
export const statusWord = (text: string): string =>
  text
    .slice(0, STATUS_WORD_CHARS_MAX + 1)
    .trim()
    .toLowerCase()
    .replace(/[ -]/g, "_");

/** The state that an upstream's word means; undefined for a word that is not known. @param own of `upstream.statuses` */
export function taskStatusOf(text: string, own?: StatusWords): TaskStatus | undefined {
  const word = statusWord(text);
  if (own && Object.hasOwn(own, word)) return own[word];
  return Object.hasOwn(STATUS_WORDS, word) ? STATUS_WORDS[word] : undefined;
}

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
