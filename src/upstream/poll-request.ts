import type { FairGate } from "../domain/fair-gate.ts";
import type { Carried } from "../telemetry/trace.ts";
import { type StatusWords, upstreamTaskId } from "./answer.ts";
import { type CheckedRequest, checkRequest, type Dialect } from "./dialect.ts";
import {
  ACCEPT_JSON,
  type ExchangeResult,
  type JsonClient,
  type JsonRequest,
  overloaded,
} from "./json-client.ts";
import {
  ANOTHER_TASK,
  type PollAnswer,
  type PolledTask,
  type ResultRequest,
  readPoll,
  readResult,
} from "./poll-answer.ts";
import { endpointOf } from "./task-route.ts";

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
  carried?: Carried | undefined;
  /** When the task was bound, Unix ms: for an answer that does not say when it was created. */
  createdAtMs?: number | undefined;
  /** As stored with the task: it names the endpoint that made it. */
  tag?: string | undefined;
}

interface PollChannel {
  client: JsonClient;
  gate: FairGate;
  limit: string;
  totalTimeoutMs: number;
  statuses: StatusWords | undefined;
  dialect: Dialect;
}

const SWEEPER = "sweeper";

export async function sendPoll(
  { client, gate, limit, totalTimeoutMs, statuses, dialect }: PollChannel,
  shownId: string,
  { accountId: owner = SWEEPER, requestId, carried, createdAtMs, tag }: PollSender,
): Promise<PollOutcome> {
  const taskId = upstreamTaskId(shownId);
  const task = { taskId, endpoint: endpointOf(tag), createdAtMs, statuses };
  const request = dialect.call("poll", "", () => checkRequest(dialect.adapter.poll(task, dialect.options)));
  if ("outcome" in request) return { outcome: "failed", detail: request.detail };
  // The wait for a connection counts: a poll can be given up at no cost, and its task's lease is as long as the budget.
  let budgetMs = totalTimeoutMs;
  if (!gate.enter(owner)) {
    const sinceMs = performance.now();
    const refusal = await gate.wait(owner);
    if (refusal) return overloaded(refusal, limit);
    budgetMs -= Math.floor(performance.now() - sinceMs);
  }
  const deadlineMs = performance.now() + budgetMs;
  try {
    const exchange = { carried, budgetMs, gate, owner };
    let outcome = pollOutcome(await client.send(requestOf(request, requestId, exchange)), task, dialect);
    if (outcome.outcome === "result_elsewhere") {
      exchange.budgetMs = Math.max(1, Math.ceil(deadlineMs - performance.now()));
      const second = requestOf(outcome.request, requestId, exchange);
      outcome = resultOutcome(await client.send(second), task, dialect);
    }
    if (outcome.outcome === "failed" && outcome.detail === ANOTHER_TASK) client.reset();
    return outcome;
  } finally {
    gate.leave(owner);
  }
}

function requestOf(
  { method, path, body, headers }: CheckedRequest,
  requestId: string,
  exchange: Omit<JsonRequest, "method" | "path" | "headers" | "body">,
): JsonRequest {
  const own = [...ACCEPT_JSON, "x-request-id", requestId];
  if (body !== null) own.push("content-type", "application/json");
  return { method, path, headers: headers === undefined ? own : own.concat(headers), body, ...exchange };
}

export function pollOutcome(
  result: ExchangeResult,
  task: PolledTask,
  dialect: Dialect,
): PollOutcome | ResultRequest {
  return result.outcome === "answered" ? readPoll(result, task, dialect) : unanswered(result);
}

const resultOutcome = (result: ExchangeResult, task: PolledTask, dialect: Dialect): PollOutcome =>
  result.outcome === "answered" ? readResult(result, task, dialect) : unanswered(result);

function unanswered(result: Exclude<ExchangeResult, { outcome: "answered" }>): PollOutcome {
  const isLate = result.outcome === "lost" && result.timedOut;
  return { outcome: isLate ? "timed_out" : "failed", detail: result.detail };
}
