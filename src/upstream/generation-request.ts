import { setTimeout } from "node:timers/promises";
import type { StatusWords } from "../domain/task-states.ts";
import type { Carried } from "../telemetry/trace.ts";
import { describeAnswer } from "./answer.ts";
import { type Gate, overloaded } from "./gate.ts";
import { type GenerationAnswer, readGeneration } from "./generation-answer.ts";
import type { ExchangeResult, JsonClient, JsonRequest } from "./json-client.ts";

/**
 * How a generation ended upstream. `accepted` is the definite yes; after `unclear` and `timed_out` the task may run. All
 * others are a definite no; `unreachable` also where it was not sent.
 */
export type GenerationOutcome =
  | GenerationAnswer
  /** No connection was free in time; it was not sent. */
  | { outcome: "overloaded"; detail: string }
  | { outcome: "timed_out"; detail: string };

type UnknownGeneration = Extract<GenerationOutcome, { outcome: "unclear" } | { outcome: "timed_out" }>;

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
  statuses: StatusWords | undefined;
}

/** Without Accept-Encoding an upstream may choose any. RFC 9110 12.5.3. */
export const ACCEPT_JSON = ["accept", "application/json", "accept-encoding", "identity"] as const;
const HEADERS: readonly string[] = ["content-type", "application/json", ...ACCEPT_JSON];

/** How often a request is sent in all to an idempotent upstream, and the pause before the first repeat. */
const ATTEMPTS_MAX = 3;
const PAUSE_MS = 250;

/**
 * Sends a generation once a connection is free. Only an idempotent upstream is sent a request again whose outcome is unknown, with
 * the same key and within the same total deadline.
 * @param body exactly what was priced
 */
export async function sendGeneration(
  { client, gate, connections, totalTimeoutMs, idempotent, statuses }: GenerationChannel,
  path: string,
  body: string,
  { accountId: owner, requestId, carried }: Sender,
): Promise<GenerationOutcome> {
  if (!gate.enter(owner)) {
    const refusal = await gate.wait(owner);
    if (refusal) return overloaded(refusal, `${connections} upstream.connections`);
  }
  try {
    const headers = HEADERS.concat(["idempotency-key", requestId, "x-request-id", requestId]);
    const request: JsonRequest = { method: "POST", path, headers, body, carried, gate, owner };
    // The wait for a connection does not count: a request must not be sent with too little time for its answer.
    const deadlineMs = performance.now() + totalTimeoutMs;
    let unknown: UnknownGeneration | undefined;
    for (let attempt = 1; ; attempt++) {
      if (attempt > 1) request.budgetMs = Math.ceil(deadlineMs - performance.now());
      const outcome = generationOutcome(await client.send(request), body, statuses);
      if (outcome.outcome === "accepted") return outcome;
      const detail = unknown ? `${unknown.detail}; then ${outcome.detail}` : outcome.detail;
      if (outcome.outcome === "unclear" || outcome.outcome === "timed_out") unknown = { ...outcome, detail };
      // A no to a repeat says nothing about the attempt before it, which may have made the task.
      else if (unknown) unknown = { ...unknown, detail };
      else return outcome;
      const pauseMs = PAUSE_MS * attempt;
      const attemptsMax = idempotent ? ATTEMPTS_MAX : 1;
      if (attempt >= attemptsMax || deadlineMs - performance.now() <= pauseMs) return unknown;
      await setTimeout(pauseMs);
    }
  } finally {
    gate.leave(owner);
  }
}

/** Exported for tests of each row. */
export function generationOutcome(
  result: ExchangeResult,
  sent?: string,
  statuses?: StatusWords,
): GenerationOutcome {
  switch (result.outcome) {
    case "not_sent":
      return { outcome: "unreachable", detail: result.detail };
    case "lost": {
      const { received, timedOut } = result;
      const detail = received
        ? `${result.detail}; ${describeAnswer(received, undefined, sent)}`
        : result.detail;
      return { outcome: timedOut ? "timed_out" : "unclear", detail };
    }
    case "answered":
      return readGeneration(result, sent, statuses);
  }
}
