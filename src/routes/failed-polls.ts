import { dropOldest } from "../core/bounded.ts";
import { retrySeconds } from "../core/envelope.ts";
import type { Refusal } from "../core/errors.ts";

const TASKS_MAX = 10_000;
/** So many different tasks in a row without an answer, and it is the upstream that fails, not a task. */
const TASKS_IN_A_ROW = 10;

interface Failure {
  refusal: Refusal;
  untilMs: number;
}

/**
 * Polls that the upstream gave no answer to. Each is repeated from memory until the `retryAfter` that its customer was
 * told is over, so that customers who poll do not multiply an outage. Once polls of many tasks in a row have failed, the
 * upstream as a whole is polled once per `retryAfter`, until it answers. In this process's memory only. Decision 0030.
 */
export function createFailedPolls(nowMs: () => number = () => performance.now()) {
  const tasks = new Map<string, Failure>();
  /** Tasks whose polls have failed since the upstream last answered one. */
  const inARow = new Set<string>();
  let latest: Failure | undefined;

  const remaining = ({ refusal, untilMs }: Failure): Refusal | undefined => {
    const leftMs = untilMs - nowMs();
    if (leftMs <= 0) return undefined;
    return {
      ...refusal,
      retryAfterSeconds: retrySeconds(leftMs),
      detail: "the upstream failed a moment ago",
    };
  };

  return {
    /** The refusal to answer without asking; undefined: ask, and call `ended`. */
    recall(task: string): Refusal | undefined {
      const failure = tasks.get(task);
      const refusal = failure && remaining(failure);
      if (refusal) return refusal;
      if (!latest || inARow.size < TASKS_IN_A_ROW) return undefined;
      const paused = remaining(latest);
      // This one goes through and finds out; the others wait for another `retryAfter`.
      if (!paused) latest = failureOf(latest.refusal);
      return paused;
    },
    /** @param refusal what its customers are told, if the upstream gave no answer about the task */
    ended(task: string, refusal: Refusal | undefined): void {
      tasks.delete(task);
      if (!refusal) {
        inARow.clear();
        return;
      }
      latest = failureOf(refusal);
      dropOldest(tasks, TASKS_MAX);
      tasks.set(task, latest);
      if (inARow.size < TASKS_IN_A_ROW) inARow.add(task);
    },
  };

  function failureOf(refusal: Refusal): Failure {
    return { refusal, untilMs: nowMs() + 1000 * (refusal.retryAfterSeconds ?? 0) };
  }
}

export type FailedPolls = ReturnType<typeof createFailedPolls>;
