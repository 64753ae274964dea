import { isObject, parseObject } from "../domain/json.ts";
import { isTaskStatus, type TaskStatus } from "../domain/task-states.ts";
import { type Gate, overloaded } from "./gate.ts";
import { ACCEPT_JSON, type Sender } from "./generation-request.ts";
import type { ExchangeResult, JsonClient } from "./json-client.ts";
import { readRejection, type UpstreamRejection } from "./rejection.ts";
import { dataText } from "./task-data.ts";

/** The upstream's answer about a task; `data` is the task as JSON, `Task` in docs/openapi.json. */
export type PollOutcome =
  | Exclude<UpstreamRejection, { outcome: "refused" }>
  /** `aboutTask`: the API itself refused, and for good; else a proxy's answer, or a transient fault. */
  | (Extract<UpstreamRejection, { outcome: "refused" }> & { aboutTask: boolean })
  /** No connection was free in time; it was not sent. */
  | { outcome: "overloaded"; detail: string }
  | { outcome: "task"; status: TaskStatus; data: string }
  /** An envelope with code 404: the API does not know the task. */
  | { outcome: "gone" }
  /** HTTP 404 without an envelope: the server that answered does not serve the API there. */
  | { outcome: "misrouted"; detail: string }
  /** Not sent: the address or the credential of the upstream that made the task is not configured. */
  | { outcome: "unroutable"; detail: string }
  | { outcome: "failed" | "timed_out"; detail: string };

/** A poll of the sweeper's has no account. */
export interface PollSender extends Omit<Sender, "accountId"> {
  accountId: string | undefined;
  /** When the task was bound, Unix ms: for an answer that does not say when it was created. */
  createdAtMs?: number | undefined;
}

/** The connections for polls of customers, or of the sweeper. */
export interface PollChannel {
  client: JsonClient;
  gate: Gate;
  /** The connections behind the gate, in words. */
  limit: string;
  totalTimeoutMs: number;
}

const SWEEPER = "sweeper";
const ANOTHER_TASK = "the answer is about another task";

/** Polls a task once a connection is free. */
export async function sendPoll(
  { client, gate, limit, totalTimeoutMs }: PollChannel,
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
    const outcome = readPoll(
      await client.send({ method: "GET", path, headers, body: null, carried, budgetMs, gate, owner }),
      taskId,
      createdAtMs,
    );
    if (outcome.outcome === "failed" && outcome.detail === ANOTHER_TASK) client.reset();
    return outcome;
  } finally {
    gate.leave(owner);
  }
}

/** Reads the result of a poll. Exported for tests of each row. */
export function readPoll(result: ExchangeResult, taskId: string, createdAtMs?: number): PollOutcome {
  if (result.outcome === "not_sent") return failed(result.detail);
  if (result.outcome === "lost") {
    return { outcome: result.timedOut ? "timed_out" : "failed", detail: result.detail };
  }
  const { status } = result;
  const envelope = parseObject(result.body);
  if (status === 200 && envelope?.code === 200 && isObject(envelope.data)) {
    const { data } = envelope;
    // The API requires the id; without it, it is not known which task the answer is about.
    if (data.task_id === undefined) return failed("the answer has no task_id");
    if (data.task_id !== taskId) return failed(ANOTHER_TASK);
    if (!isTaskStatus(data.status)) return failed("the answer has no known status");
    // The API requires it, too, and customers' clients may rely on that.
    if (typeof data.created_at !== "string" && createdAtMs !== undefined)
      data.created_at = new Date(createdAtMs).toISOString();
    return { outcome: "task", status: data.status, data: dataText(data) };
  }
  const code = typeof envelope?.code === "number" ? envelope.code : undefined;
  if (code === 404 && (status === 404 || status === 200)) return { outcome: "gone" };
  if (status === 404 && (code === undefined || code === 200)) {
    return { outcome: "misrouted", detail: "HTTP 404 without the API's envelope" };
  }
  if ((status === 200 && code !== undefined && code !== 200) || (status >= 400 && status < 500)) {
    const rejection = readRejection(result, envelope, "task");
    return rejection.outcome === "refused"
      ? { ...rejection, aboutTask: isAboutTask(status, code) }
      : rejection;
  }
  return failed(`HTTP ${status} without a task`);
}

/** 408, 425 and 5xx are transient faults; an answer without a code is not the API's. */
function isAboutTask(status: number, code: number | undefined): boolean {
  const isTransient = (n: number): boolean => n === 408 || n === 425 || (n >= 500 && n < 600);
  return code !== undefined && !isTransient(status) && !isTransient(code);
}

const failed = (detail: string): PollOutcome => ({ outcome: "failed", detail });
