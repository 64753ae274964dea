import { setTimeout } from "node:timers/promises";
import type { FairGate } from "../domain/fair-gate.ts";
import type { StatusWords } from "../domain/task-states.ts";
import type { Carried } from "../telemetry/trace.ts";
import { describeAnswer } from "./answer.ts";
import { overloaded } from "./gate.ts";
import { type GenerationAnswer, readGeneration } from "./generation-answer.ts";
import type { ExchangeResult, JsonClient } from "./json-client.ts";

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
  gate: FairGate;
  connections: number;
  totalTimeoutMs: number;
  /** The upstream runs one Idempotency-Key once (`upstream.idempotency_key`). */
  idempotent: boolean;
  statuses: StatusWords | undefined;
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
  { client, gate, totalTimeoutMs, idempotent, statuses }: GenerationChannel,
  path: string,
  body: string,
  { accountId, requestId, carried }: Sender,
): Promise<GenerationOutcome> {
  const headers = [...HEADERS, "idempotency-key", requestId, "x-request-id", requestId];
  // The wait for a connection does not count: a request must not be sent with too little time for its answer.
  const deadlineMs = performance.now() + totalTimeoutMs;
  let unknown: UnknownGeneration | undefined;
  for (let attempt = 1; ; attempt++) {
    const budgetMs = Math.ceil(deadlineMs - performance.now());
    const outcome = generationOutcome(
      await client.send({ method: "POST", path, headers, body, carried, budgetMs, gate, owner: accountId }),
      body,
      statuses,
    );
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
