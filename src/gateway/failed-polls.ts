import { dropOldest } from "../domain/bounded.ts";
import { retrySeconds } from "../domain/envelope.ts";
import type { Refusal } from "../domain/errors.ts";

const TASKS_MAX = 10_000;
const ACCOUNTS_MAX = 10_000;
/** So many different tasks in a row without an answer, and it is the upstream that fails, not a task. */
const TASKS_IN_A_ROW = 10;

interface Failure {
  refusal: Refusal;
  untilMs: number;
}

/** An account's polls that failed since the upstream last answered one of them. */
interface Row {
  tasks: Set<string>;
  latest: Failure;
}

/**
 * Polls that the upstream gave no answer to. Each is repeated from memory until the `retryAfter` that its customer was
 * told is over, so that customers who poll do not multiply an outage. Once polls of many tasks of an account have failed
 * in a row, the upstream is polled for this account once per `retryAfter`, until it answers. What fails for one account
 * says nothing of others: its tasks may be the reason. In this process's memory only. Decision 0030.
 */
export function createFailedPolls(nowMs: () => number = () => performance.now()) {
  const tasks = new Map<string, Failure>();
  const rows = new Map<string, Row>();

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
    recall(accountId: string, taskId: string): Refusal | undefined {
      const failure = tasks.get(nameOf(accountId, taskId));
      const refusal = failure && remaining(failure);
      if (refusal) return refusal;
      const row = rows.get(accountId);
      if (!row || row.tasks.size < TASKS_IN_A_ROW) return undefined;
      const paused = remaining(row.latest);
      // This one goes through and finds out; the others wait for another `retryAfter`.
      if (!paused) row.latest = failureOf(row.latest.refusal);
      return paused;
    },
    /** @param refusal what its customers are told, if the upstream gave no answer about the task */
    ended(accountId: string, taskId: string, refusal: Refusal | undefined): void {
      const name = nameOf(accountId, taskId);
      tasks.delete(name);
      if (!refusal) {
        rows.delete(accountId);
        return;
      }
      const latest = failureOf(refusal);
      dropOldest(tasks, TASKS_MAX);
      tasks.set(name, latest);
      const row = rowOf(accountId, latest);
      row.latest = latest;
      if (row.tasks.size < TASKS_IN_A_ROW) row.tasks.add(taskId);
    },
  };

  function rowOf(accountId: string, latest: Failure): Row {
    let row = rows.get(accountId);
    if (!row) {
      row = { tasks: new Set(), latest };
      dropOldest(rows, ACCOUNTS_MAX);
      rows.set(accountId, row);
    }
    return row;
  }

  function failureOf(refusal: Refusal): Failure {
    return { refusal, untilMs: nowMs() + 1000 * (refusal.retryAfterSeconds ?? 0) };
  }
}

export type FailedPolls = ReturnType<typeof createFailedPolls>;

/** A task id belongs to one account, whose partition its name carries. */
const nameOf = (accountId: string, taskId: string): string => `${accountId} ${taskId}`;
