import { setTimeout } from "node:timers/promises";
import { isObject, parseObject } from "../domain/json.ts";
import { isTaskStatus, TASK_ID, type TaskStatus } from "../domain/task-states.ts";
import type { Carried } from "../telemetry/trace.ts";
import { createExchanger, type Exchanged } from "./exchange.ts";
import { createGate, type GateObserver, type GateRefusal } from "./gate.ts";
import { refusedBy, type Trouble } from "./refusal.ts";
import { SpacedWork } from "./spaced-work.ts";
import { dataText } from "./task-data.ts";
import { upstreamTag } from "./task-route.ts";

/**
 * How a generation ended upstream. `accepted` is the definite yes; `unclear` and `timed_out` are unknown: the task
 * may run. All others are a definite no.
 */
export type GenerationOutcome =
  | Trouble
  /** No connection was free in time; it was never sent. */
  | { outcome: "overloaded"; detail: string }
  | { outcome: "accepted"; taskId: string; data: string }
  | { outcome: "unreachable"; detail: string }
  | { outcome: "unclear"; detail: string }
  | { outcome: "timed_out"; detail: string };

/** What the upstream says of a task; `data` is the task as JSON, `Task` in docs/openapi.json. */
export type PollOutcome =
  | Exclude<Trouble, { outcome: "refused" }>
  /** `aboutTask`: the API itself refused, and for good; else a proxy's answer, or a fault that may pass. */
  | (Extract<Trouble, { outcome: "refused" }> & { aboutTask: boolean })
  /** No connection was free in time; it was never sent. */
  | { outcome: "overloaded"; detail: string }
  | { outcome: "task"; status: TaskStatus; data: string }
  /** An envelope with code 404: the API does not know the task. */
  | { outcome: "gone" }
  /** HTTP 404 without an envelope: whoever answered does not serve the API there. */
  | { outcome: "misrouted"; detail: string }
  /** Not sent: the upstream that made the task is not known any more, or the credential for it. */
  | { outcome: "unroutable"; detail: string }
  | { outcome: "failed" | "timed_out"; detail: string };

/** Whose request it is. */
export interface Sender {
  accountId: string;
  requestId: string;
  /** The trace that goes along. */
  carried?: Carried | undefined;
}

/** A poll of the sweeper's. */
export type Sweep = Omit<Sender, "accountId"> & { accountId: undefined };

export interface Upstream {
  /** Recognises this upstream and its credential; stored with each task that it makes. */
  readonly tag: string;
  /** @param body exactly what was priced; `requestId` goes along as Idempotency-Key */
  generate(path: string, body: string, sender: Sender): Promise<GenerationOutcome>;
  poll(taskId: string, sender: Sender | Sweep): Promise<PollOutcome>;
  /** A generation's answer was another request's: the connections it may have come on are not used again. */
  resetConnectionPool(): void;
  close(): Promise<void>;
}

/** Without Accept-Encoding an upstream may choose any. RFC 9110 12.5.3. */
const ACCEPTED = ["accept", "application/json", "accept-encoding", "identity"] as const;
const GENERATION_HEADERS = ["content-type", "application/json", ...ACCEPTED];

const ANOTHER_TASK = "the answer is about another task";

/** With an idempotent upstream: how often a broken POST is sent in all, and the pause before each repeat. */
const ATTEMPTS_MAX = 3;
const PAUSE_MS = 250;

/** Polls of the sweeper at a time, at one upstream. */
export const SWEEP_POLLS_MAX = 4;
const SWEEPER = "sweeper";
/** One account may have this share of the customers' polls in flight, so that another's find a connection at once. */
const ACCOUNT_SHARE = 3 / 4;

export interface UpstreamOptions {
  /** Origin and optional base path, no trailing slash. */
  url: string;
  apiKey: string | undefined;
  tlsCa?: string | undefined;
  connectTimeoutMs: number;
  headersTimeoutMs: number;
  totalTimeoutMs: number;
  keepAliveTimeoutMs: number;
  /** For generations. */
  connections: number;
  /** For polls; `SWEEP_POLLS_MAX` of them, at most half, are the sweeper's. */
  pollConnections: number;
  /** The upstream runs one Idempotency-Key once (`upstream.idempotency_key`). */
  idempotent: boolean;
  /** What the metrics learn of requests that wait for a connection. */
  observer?: Readonly<Record<"generate" | "poll", GateObserver>>;
}

/**
 * How long a request may wait for a connection: one that is sent at the last moment still has its whole headers timeout
 * before `totalTimeoutMs` have passed since it came. Never longer than the headers timeout, by which a hold outlives the
 * exchange.
 */
export function waitMaxMs({
  headersTimeoutMs,
  totalTimeoutMs,
}: Pick<UpstreamOptions, "headersTimeoutMs" | "totalTimeoutMs">): number {
  return Math.max(0, Math.min(headersTimeoutMs, totalTimeoutMs - headersTimeoutMs));
}

/**
 * The generator behind the gateway, spoken to in the paths and the envelope of the API. Generations and polls have
 * connections of their own, so that neither waits for the other. Only an idempotent upstream is sent a POST again whose
 * outcome is unknown, with the same key and within the same total deadline.
 */
export function createUpstream(options: UpstreamOptions): Upstream {
  const { connections, totalTimeoutMs } = options;
  const shared = { ...options, largeAnswerWork: new SpacedWork() };
  const generations = createExchanger(shared);
  const polls = createExchanger({ ...shared, connections: options.pollConnections });
  const gates = createGates(options);
  const attemptsMax = options.idempotent ? ATTEMPTS_MAX : 1;
  return {
    tag: upstreamTag(options.url, options.apiKey),
    async generate(path, body, { accountId, requestId, carried }) {
      const gate = gates.generations;
      if (!gate.enter(accountId)) {
        const refusal = await gate.wait(accountId);
        if (refusal) return overloaded(refusal, `${connections} upstream.connections`);
      }
      try {
        const headers = [...GENERATION_HEADERS, "idempotency-key", requestId, "x-request-id", requestId];
        if (carried) headers.push(...carried.headers);
        // Only now: what waits for a connection must not go out with too little time to be answered.
        const deadlineMs = performance.now() + totalTimeoutMs;
        let unknown: GenerationOutcome | undefined;
        for (let attempt = 1; ; attempt++) {
          const budgetMs = Math.ceil(deadlineMs - performance.now());
          const exchanged = await generations.send({
            method: "POST",
            path,
            headers,
            body,
            budgetMs,
            gate,
            owner: accountId,
          });
          if (exchanged.outcome === "answered") carried?.answered?.(exchanged.status);
          const outcome = readGeneration(exchanged);
          if (outcome.outcome === "unclear" || outcome.outcome === "timed_out") unknown = outcome;
          // A no to a repeat says nothing of the try before it, which may have made the task.
          if (outcome.outcome === "accepted" || !unknown) return outcome;
          const pauseMs = PAUSE_MS * attempt;
          if (attempt >= attemptsMax || deadlineMs - performance.now() <= pauseMs) return unknown;
          await setTimeout(pauseMs);
        }
      } finally {
        gate.leave(accountId);
      }
    },
    async poll(taskId, { accountId, requestId, carried }) {
      const { gate, limit } = accountId === undefined ? gates.sweeps : gates.polls;
      const owner = accountId ?? SWEEPER;
      // A poll's wait counts: nothing is lost when one is given up, and its task's lease is that long.
      let budgetMs = totalTimeoutMs;
      if (!gate.enter(owner)) {
        const cameAtMs = performance.now();
        const refusal = await gate.wait(owner);
        if (refusal) return overloaded(refusal, limit);
        budgetMs -= Math.floor(performance.now() - cameAtMs);
      }
      try {
        const headers = [...ACCEPTED, "x-request-id", requestId];
        if (carried) headers.push(...carried.headers);
        const path = `/api/v1/tasks/${taskId}`;
        const exchanged = await polls.send({
          method: "GET",
          path,
          headers,
          body: null,
          budgetMs,
          gate,
          owner,
        });
        if (exchanged.outcome === "answered") carried?.answered?.(exchanged.status);
        const outcome = readPoll(exchanged, taskId);
        if (outcome.outcome === "failed" && outcome.detail === ANOTHER_TASK) polls.reset();
        return outcome;
      } finally {
        gate.leave(owner);
      }
    },
    resetConnectionPool: generations.reset,
    async close() {
      for (const gate of [gates.generations, gates.polls.gate, gates.sweeps.gate]) gate.close();
      await Promise.all([generations.close(), polls.close()]);
    },
  };
}

/** The sweeper's polls have a share of their own: customers' polls never keep a task open that nobody asks for. */
function createGates(options: UpstreamOptions) {
  const { connections, pollConnections, observer } = options;
  const waiting = { waitMaxMs: waitMaxMs(options) };
  const sweeps = Math.min(SWEEP_POLLS_MAX, Math.floor(pollConnections / 2));
  const polls = pollConnections - sweeps;
  return {
    generations: createGate({
      ...waiting,
      inFlightMax: connections,
      waitingMax: connections,
      observer: observer?.generate,
    }),
    polls: {
      limit: `${polls} upstream.poll_connections for customers`,
      gate: createGate({
        ...waiting,
        inFlightMax: polls,
        inFlightPerOwnerMax: Math.ceil(polls * ACCOUNT_SHARE),
        waitingMax: polls,
        observer: observer?.poll,
      }),
    },
    sweeps: {
      limit: `${sweeps} upstream.poll_connections for the sweeper`,
      gate: createGate({ ...waiting, inFlightMax: sweeps, waitingMax: sweeps, observer: observer?.poll }),
    },
  };
}

function overloaded(refusal: GateRefusal, limit: string): { outcome: "overloaded"; detail: string } {
  switch (refusal) {
    case "queue_full":
      return { outcome: "overloaded", detail: `all of the ${limit} are in use, and as many requests wait` };
    case "waited_too_long":
      return { outcome: "overloaded", detail: `none of the ${limit} was free in time` };
    case "closed":
      return { outcome: "overloaded", detail: "the gateway stops" };
  }
}

/** Reads a generation's exchange. Exported for tests of each row. */
export function readGeneration(exchanged: Exchanged): GenerationOutcome {
  if (exchanged.outcome === "unsent") return { outcome: "unreachable", detail: exchanged.detail };
  if (exchanged.outcome === "lost") {
    return { outcome: exchanged.timedOut ? "timed_out" : "unclear", detail: exchanged.detail };
  }
  const { status } = exchanged;
  const envelope = parseObject(exchanged.body);
  if (status === 200) {
    if (!envelope || typeof envelope.code !== "number") return unclear("HTTP 200 without an envelope");
    if (envelope.code !== 200) return refusedBy(exchanged, envelope, false);
    const { data } = envelope;
    if (!isObject(data) || typeof data.task_id !== "string" || !TASK_ID.test(data.task_id)) {
      return unclear("HTTP 200 without a usable task_id");
    }
    return { outcome: "accepted", taskId: data.task_id, data: dataText(data) };
  }
  if (status >= 400 && status < 500) return refusedBy(exchanged, envelope, false);
  if (status === 503) return { outcome: "unreachable", detail: "HTTP 503" };
  return unclear(`HTTP ${status}`);
}

/** Reads a poll's exchange. Exported for tests of each row. */
export function readPoll(exchanged: Exchanged, taskId: string): PollOutcome {
  if (exchanged.outcome === "unsent") return { outcome: "failed", detail: exchanged.detail };
  if (exchanged.outcome === "lost") {
    return { outcome: exchanged.timedOut ? "timed_out" : "failed", detail: exchanged.detail };
  }
  const { status } = exchanged;
  const envelope = parseObject(exchanged.body);
  if (status === 200 && envelope?.code === 200 && isObject(envelope.data)) {
    const { data } = envelope;
    // Without its id, which the API requires, nobody can tell which task the answer is about.
    if (data.task_id === undefined) return { outcome: "failed", detail: "the answer has no task_id" };
    if (data.task_id !== taskId) return { outcome: "failed", detail: ANOTHER_TASK };
    if (!isTaskStatus(data.status)) return { outcome: "failed", detail: "the answer has no known status" };
    return { outcome: "task", status: data.status, data: dataText(data) };
  }
  const code = typeof envelope?.code === "number" ? envelope.code : undefined;
  if (code === 404 && (status === 404 || status === 200)) return { outcome: "gone" };
  if (status === 404 && (code === undefined || code === 200)) {
    return { outcome: "misrouted", detail: "HTTP 404 without the API's envelope" };
  }
  if ((status === 200 && code !== undefined && code !== 200) || (status >= 400 && status < 500)) {
    const refused = refusedBy(exchanged, envelope, true);
    return refused.outcome === "refused" ? { ...refused, aboutTask: isAboutTask(status, code) } : refused;
  }
  return { outcome: "failed", detail: `HTTP ${status} without a task` };
}

/** 408, 425 and the codes of the 5xx range are faults that may pass; without a code it is not the API that answered. */
function isAboutTask(status: number, code: number | undefined): boolean {
  const mayPass = (n: number): boolean => n === 408 || n === 425 || (n >= 500 && n < 600);
  return code !== undefined && !mayPass(status) && !mayPass(code);
}

const unclear = (detail: string): GenerationOutcome => ({ outcome: "unclear", detail });
