import { dropOldest } from "../domain/bounded.ts";
import { retrySeconds } from "../domain/envelope.ts";
import type { Refusal } from "../domain/errors.ts";

const TASKS_MAX = 10_000;
const ACCOUNTS_MAX = 10_000;
/** From this number of different tasks in a row without an answer on, the upstream itself is considered failed. */
const TASKS_IN_ROW = 10;

interface Failure {
  refusal: Refusal;
  untilMs: number;
}

/** An account's polls that failed since the upstream last answered one of them. */
interface FailedRow {
  tasks: Set<string>;
  latest: Failure;
}

/**
 * Polls that the upstream did not answer. Each is answered from memory until its `retryAfter` is over, so that customers
 * who poll do not add to the load of an upstream that fails. After failed polls of many tasks of an account in a row, the
 * upstream is polled once per `retryAfter` for that account until it answers. Other accounts are not affected, since the
 * cause may be this account's tasks. Decision 0030.
 */
export function createPollFailureCache(nowMs: () => number = () => performance.now()) {
  const tasks = new Map<string, Failure>();
  const rows = new Map<string, FailedRow>();

  const remaining = ({ refusal, untilMs }: Failure): Refusal | undefined => {
    const leftMs = untilMs - nowMs();
    if (leftMs <= 0) return undefined;
    const retryAfterSeconds = retrySeconds(leftMs);
    return { ...refusal, retryAfterSeconds, detail: "the upstream failed a moment ago" };
  };

  const failureOf = (refusal: Refusal): Failure => ({
    refusal,
    untilMs: nowMs() + 1000 * (refusal.retryAfterSeconds ?? 0),
  });

  function rowOf(accountId: string, latest: Failure): FailedRow {
    let row = rows.get(accountId);
    if (!row) {
      row = { tasks: new Set(), latest };
      dropOldest(rows, ACCOUNTS_MAX);
      rows.set(accountId, row);
    }
    return row;
  }

  return {
    /** The refusal to answer without a poll; undefined: poll, and call `record`. */
    get(accountId: string, taskId: string): Refusal | undefined {
      const failure = tasks.get(nameOf(accountId, taskId));
      const refusal = failure && remaining(failure);
      if (refusal) return refusal;
      const row = rows.get(accountId);
      if (!row || row.tasks.size < TASKS_IN_ROW) return undefined;
      const paused = remaining(row.latest);
      // This poll goes through as the probe; the others wait for another `retryAfter`.
      if (!paused) row.latest = failureOf(row.latest.refusal);
      return paused;
    },
    /** @param refusal what the customer is told if the upstream gave no answer about the task; undefined: it did */
    record(accountId: string, taskId: string, refusal: Refusal | undefined): void {
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
      if (row.tasks.size < TASKS_IN_ROW) row.tasks.add(taskId);
    },
  };
}

export type PollFailureCache = ReturnType<typeof createPollFailureCache>;

/** The account's partition is part of a task's name in the store, so a task id alone names no task. */
const nameOf = (accountId: string, taskId: string): string => `${accountId} ${taskId}`;
