import { setTimeout } from "node:timers/promises";
import { isObject, parseObject } from "../core/json.ts";
import { isTaskStatus, TASK_ID, type TaskStatus } from "../core/tasks.ts";
import type { Carried } from "../telemetry/trace.ts";
import { createExchanger, type Exchanged } from "./exchange.ts";
import type { GateObserver, GateRefusal } from "./gate.ts";
import { refusedBy, type Trouble } from "./refusal.ts";
import { SpacedWork } from "./spaced-work.ts";
import { dataText } from "./task-data.ts";
import { upstreamTag } from "./task-route.ts";

/**
 * How a generation ended upstream. `accepted` is the definite yes; `unclear` and `timed_out` are unknown: the task
 * may run. All others are a definite no. DESIGN section 3.
 */
export type GenerationOutcome =
  | Trouble
  /** No connection was free in time; it was never sent. */
  | { outcome: "overloaded"; detail: string }
  | { outcome: "accepted"; taskId: string; data: string }
  | { outcome: "unreachable"; detail: string }
  | { outcome: "unclear"; detail: string }
  | { outcome: "timed_out"; detail: string };

/** What the upstream says of a task; `data` is the Task of spec 2.2 as JSON. */
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

export interface Upstream {
  /** Recognises this upstream and its credential; stored with each task that it makes. */
  readonly tag: string;
  /** @param body exactly what was priced; `requestId` goes along as Idempotency-Key */
  generate(path: string, body: string, requestId: string, carried?: Carried): Promise<GenerationOutcome>;
  poll(taskId: string, requestId: string, carried?: Carried): Promise<PollOutcome>;
  /** A generation's answer was another request's: the connections it may have come on are not used again. */
  distrust(): void;
  close(): Promise<void>;
}

/** Without Accept-Encoding an upstream may choose any. RFC 9110 12.5.3. */
const ACCEPTED = ["accept", "application/json", "accept-encoding", "identity"] as const;

const ANOTHER_TASK = "the answer is about another task";

/** With an idempotent upstream: how often a broken POST is sent in all, and the pause before each repeat. */
const ATTEMPTS_MAX = 3;
const PAUSE_MS = 250;

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
  /** For polls, those of the sweeper included. */
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
 * The generator behind the gateway, spoken to in the spec's own paths and envelope. Generations and polls have
 * connections of their own, so that neither waits for the other. Only an idempotent upstream is sent a POST again whose
 * outcome is unknown, with the same key and within the same total deadline.
 */
export function createUpstream(options: UpstreamOptions): Upstream {
  const { connections, pollConnections, totalTimeoutMs, observer } = options;
  const shared = { ...options, waitMaxMs: waitMaxMs(options), largeAnswerWork: new SpacedWork() };
  const generations = createExchanger({ ...shared, observer: observer?.generate });
  const polls = createExchanger({ ...shared, connections: pollConnections, observer: observer?.poll });
  const attemptsMax = options.idempotent ? ATTEMPTS_MAX : 1;
  return {
    tag: upstreamTag(options.url, options.apiKey),
    async generate(path, body, requestId, carried) {
      if (!generations.gate.enter()) {
        const refusal = await generations.gate.wait();
        if (refusal) return overloaded(refusal, `${connections} upstream.connections`);
      }
      try {
        const type = ["content-type", "application/json", ...ACCEPTED] as const;
        const ids = ["idempotency-key", requestId, "x-request-id", requestId] as const;
        const headers = carried ? [...type, ...ids, ...carried.headers] : [...type, ...ids];
        // Only now: what waits for a connection must not go out with too little time to be answered.
        const deadlineMs = performance.now() + totalTimeoutMs;
        let unknown: GenerationOutcome | undefined;
        for (let attempt = 1; ; attempt++) {
          const leftMs = Math.ceil(deadlineMs - performance.now());
          const exchanged = await generations.send("POST", path, headers, body, leftMs);
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
        generations.gate.leave();
      }
    },
    async poll(taskId, requestId, carried) {
      // A poll's wait counts: nothing is lost when one is given up, and its task's lease is that long.
      let leftMs = totalTimeoutMs;
      if (!polls.gate.enter()) {
        const cameAtMs = performance.now();
        const refusal = await polls.gate.wait();
        if (refusal) return overloaded(refusal, `${pollConnections} upstream.poll_connections`);
        leftMs -= Math.floor(performance.now() - cameAtMs);
      }
      try {
        const headers = [...ACCEPTED, "x-request-id", requestId];
        if (carried) headers.push(...carried.headers);
        const exchanged = await polls.send("GET", `/api/v1/tasks/${taskId}`, headers, null, leftMs);
        if (exchanged.outcome === "answered") carried?.answered?.(exchanged.status);
        const outcome = readPoll(exchanged, taskId);
        if (outcome.outcome === "failed" && outcome.detail === ANOTHER_TASK) polls.renew();
        return outcome;
      } finally {
        polls.gate.leave();
      }
    },
    distrust: generations.renew,
    async close() {
      await Promise.all([generations.close(), polls.close()]);
    },
  };
}

function overloaded(refusal: GateRefusal, limit: string): { outcome: "overloaded"; detail: string } {
  switch (refusal) {
    case "queue_full":
      return { outcome: "overloaded", detail: `all ${limit} are in use, and as many requests wait` };
    case "waited_too_long":
      return { outcome: "overloaded", detail: `none of ${limit} was free in time` };
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
    // Without its id (spec 2.2 requires it) nobody can tell which task the answer is about.
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
