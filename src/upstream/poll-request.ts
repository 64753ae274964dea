import type { FairGate } from "../domain/fair-gate.ts";
import type { StatusWords } from "../domain/task-states.ts";
import type { Carried } from "../telemetry/trace.ts";
import { overloaded } from "./gate.ts";
import { ACCEPT_JSON, type ExchangeResult, type JsonClient } from "./json-client.ts";
import { ANOTHER_TASK, type PollAnswer, type PolledTask, readPoll } from "./poll-answer.ts";

/** How a poll ended. */
export type PollOutcome =
  | PollAnswer
  /** No connection was free in time; it was not sent. */
  | { outcome: "overloaded"; detail: string }
  /** Not sent: the address or the credential of the upstream that made the task is not configured. */
  | { outcome: "unroutable"; detail: string }
  | { outcome: "timed_out"; detail: string };

/** A poll of the sweeper's has no account. */
export interface PollSender {
  accountId: string | undefined;
  requestId: string;
  /** The trace that the poll belongs to. */
  carried?: Carried | undefined;
  /** When the task was bound, Unix ms: for an answer that does not say when it was created. */
  createdAtMs?: number | undefined;
}

/** The connections for polls of customers, or of the sweeper. */
export interface PollChannel {
  client: JsonClient;
  gate: FairGate;
  /** The connections behind the gate, in words. */
  limit: string;
  totalTimeoutMs: number;
  statuses: StatusWords | undefined;
}

const SWEEPER = "sweeper";

/** Polls a task once a connection is free. */
export async function sendPoll(
  { client, gate, limit, totalTimeoutMs, statuses }: PollChannel,
  taskId: string,
  { accountId: owner = SWEEPER, requestId, carried, createdAtMs }: PollSender,
): Promise<PollOutcome> {
  // The wait for a connection counts: a poll can be given up at no cost, and its task's lease is as long as the budget.
  let budgetMs = totalTimeoutMs;
  if (!gate.enter(owner)) {
    const sinceMs = performance.now();
    const refusal = await gate.wait(owner);
    if (refusal) return overloaded(refusal, limit);
    budgetMs -= Math.floor(performance.now() - sinceMs);
  }
  try {
    const headers = [...ACCEPT_JSON, "x-request-id", requestId];
    const path = `/api/v1/tasks/${taskId}`;
    const outcome = pollOutcome(
      await client.send({ method: "GET", path, headers, body: null, carried, budgetMs, gate, owner }),
      { taskId, createdAtMs, statuses },
    );
    if (outcome.outcome === "failed" && outcome.detail === ANOTHER_TASK) client.reset();
    return outcome;
  } finally {
    gate.leave(owner);
  }
}

/** Exported for tests of each row. */
export function pollOutcome(result: ExchangeResult, task: PolledTask): PollOutcome {
  switch (result.outcome) {
    case "not_sent":
      return { outcome: "failed", detail: result.detail };
    case "lost":
      return { outcome: result.timedOut ? "timed_out" : "failed", detail: result.detail };
    case "answered":
      return readPoll(result, task);
  }
}
