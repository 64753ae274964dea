import { setTimeout } from "node:timers/promises";
import { isObject, parseObject } from "../domain/json.ts";
import { isTaskStatus, TASK_ID } from "../domain/task-states.ts";
import type { Carried } from "../telemetry/trace.ts";
import { type Gate, overloaded } from "./gate.ts";
import type { ExchangeResult, JsonClient } from "./json-client.ts";
import { readRejection, type UpstreamRejection } from "./rejection.ts";
import { dataText } from "./task-data.ts";

/**
 * How a generation ended upstream. `accepted` is the definite yes; after `unclear` and `timed_out` the task may run. All
 * others are a definite no.
 */
export type GenerationOutcome =
  | UpstreamRejection
  /** No connection was free in time; it was not sent. */
  | { outcome: "overloaded"; detail: string }
  | { outcome: "accepted"; taskId: string; data: string }
  /** It was not sent, or answered with 503. */
  | { outcome: "unreachable"; detail: string }
  | { outcome: "unclear"; detail: string }
  | { outcome: "timed_out"; detail: string };

/** Whose request it is. */
export interface Sender {
  accountId: string;
  requestId: string;
  /** The trace that the request belongs to. */
  carried?: Carried | undefined;
}

/** The connections for generations. */
export interface GenerationChannel {
  client: JsonClient;
  gate: Gate;
  connections: number;
  totalTimeoutMs: number;
  /** The upstream runs one Idempotency-Key once (`upstream.idempotency_key`). */
  idempotent: boolean;
}

/** Without Accept-Encoding an upstream may choose any. RFC 9110 12.5.3. */
export const ACCEPT_JSON = ["accept", "application/json", "accept-encoding", "identity"] as const;
const HEADERS = ["content-type", "application/json", ...ACCEPT_JSON];

/** How often a request is sent in all to an idempotent upstream, and the pause before the first repeat. */
const ATTEMPTS_MAX = 3;
const PAUSE_MS = 250;

/** Sends a generation once a connection is free. @param body exactly what was priced */
export async function sendGeneration(
  channel: GenerationChannel,
  path: string,
  body: string,
  sender: Sender,
): Promise<GenerationOutcome> {
  const { gate, connections } = channel;
  if (!gate.enter(sender.accountId)) {
    const refusal = await gate.wait(sender.accountId);
    if (refusal) return overloaded(refusal, `${connections} upstream.connections`);
  }
  try {
    return await sendUntilKnown(channel, path, body, sender);
  } finally {
    gate.leave(sender.accountId);
  }
}

/**
 * Only an idempotent upstream is sent a request again whose outcome is unknown, with the same key and within the same total
 * deadline.
 */
async function sendUntilKnown(
  { client, gate, totalTimeoutMs, idempotent }: GenerationChannel,
  path: string,
  body: string,
  { accountId, requestId, carried }: Sender,
): Promise<GenerationOutcome> {
  const headers = [...HEADERS, "idempotency-key", requestId, "x-request-id", requestId];
  // The wait for a connection does not count: a request must not be sent with too little time for its answer.
  const deadlineMs = performance.now() + totalTimeoutMs;
  let unknown: GenerationOutcome | undefined;
  for (let attempt = 1; ; attempt++) {
    const budgetMs = Math.ceil(deadlineMs - performance.now());
    const outcome = readGeneration(
      await client.send({ method: "POST", path, headers, body, carried, budgetMs, gate, owner: accountId }),
    );
    if (outcome.outcome === "unclear" || outcome.outcome === "timed_out") unknown = outcome;
    // A no to a repeat says nothing about the attempt before it, which may have made the task.
    if (outcome.outcome === "accepted" || !unknown) return outcome;
    const pauseMs = PAUSE_MS * attempt;
    const attemptsMax = idempotent ? ATTEMPTS_MAX : 1;
    if (attempt >= attemptsMax || deadlineMs - performance.now() <= pauseMs) return unknown;
    await setTimeout(pauseMs);
  }
}

/** Reads the result of a generation. Exported for tests of each row. */
export function readGeneration(result: ExchangeResult): GenerationOutcome {
  if (result.outcome === "not_sent") return { outcome: "unreachable", detail: result.detail };
  if (result.outcome === "lost") {
    return { outcome: result.timedOut ? "timed_out" : "unclear", detail: result.detail };
  }
  const { status } = result;
  const envelope = parseObject(result.body);
  if (status === 200) {
    if (!envelope || typeof envelope.code !== "number") return unclear("HTTP 200 without an envelope");
    if (envelope.code !== 200) return readRejection(result, envelope, "request");
    const { data } = envelope;
    if (!isObject(data) || typeof data.task_id !== "string" || !TASK_ID.test(data.task_id)) {
      return unclear("HTTP 200 without a usable task_id");
    }
    // The task exists, so the answer counts; a status that the API does not have is left out.
    if (!isTaskStatus(data.status)) delete data.status;
    return { outcome: "accepted", taskId: data.task_id, data: dataText(data) };
  }
  if (status >= 400 && status < 500) return readRejection(result, envelope, "request");
  if (status === 503) return { outcome: "unreachable", detail: "HTTP 503" };
  return unclear(`HTTP ${status}`);
}

const unclear = (detail: string): GenerationOutcome => ({ outcome: "unclear", detail });
